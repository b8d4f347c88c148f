"""Image tokens: what stands for an image in a ledger. Ids beyond every vocabulary, made of the image's digest.

An image is so many numbers to a model, and no id of its vocabulary is one of them. A span of as many ids as the image
has embeddings stands for it: equal images have equal spans and others have not, so that all that compares, names, cuts
and stores tokens does so with images too. The first id of a span differs in kind from the others: where one image
follows another, both are told apart. No pixels here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice

_BEYOND = 1 << 31
_FIRST = 1 << 30
_BITS = _FIRST - 1

Span = tuple[int, ...]
"""Image tokens that stand for one piece of an image: what is fed to a model at once."""


def is_image_token(token: int) -> bool:
    """Whether an id stands for a part of an image, and not for an entry of a vocabulary."""
    return token >= _BEYOND


def image_span(name: str, length: int) -> Span:
    """The span of a piece of an image: nine tokens of it have all bits of a digest of its name."""
    bits = hashlib.shake_256(name.encode()).digest(4 * length)
    ids = [_BEYOND | (int.from_bytes(bits[at : at + 4], "little") & _BITS) for at in range(0, 4 * length, 4)]
    return (ids[0] | _FIRST, *((id & ~_FIRST) for id in ids[1:]))


def spans_in(tokens: Sequence[int], since: int = 0) -> Iterator[tuple[int, Span]]:
    """Where each span begins, and the span. Image tokens that begin with none are a span too."""
    begin: int | None = None
    found: list[int] = []
    for place, token in enumerate(islice(tokens, since, None), since):
        if begin is not None and (token < _BEYOND or token & _FIRST):
            yield begin, tuple(found)
            begin = None
        if token >= _BEYOND:
            if begin is None:
                begin, found = place, []
            found.append(token)
    if begin is not None:
        yield begin, tuple(found)
