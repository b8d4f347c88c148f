"""Vocabularies of bytes and of the markers of one format, and turns in them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import llguidance
from llguidance import TokenizerWrapper

from tenuto.pipelines.formats import FORMATS
from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.formats.call_format import CallFormat
from tenuto.pipelines.turns import TurnEvent
from tenuto.pipelines.vocabulary import Vocabulary, vocabulary_of
from tenuto.sessions.items import ToolSpec
from tests.pipelines.formats.turns import merged

_MARKER = re.compile(r"\]<\]minimax\[>\[|｜DSML｜|<[^<>\s=]+>|\[/?[A-Z_]+\]")
REASONS = " ".join(
    (
        "<think>",
        "[THINK]",
        "<thinking>",
        "<think:opensource>",
        "<seed:think>",
        "<|inner_prefix|>",
        "<|START_THINKING|>",
        "<|channel>",
        "<|think|>",
        "<|open|>",
        "<mm:think>",
        "to=self",
    )
)
"""All with which a family's reasoning may begin."""
NOTHING = Surroundings("", "", "", vocabulary_of((), frozenset(), frozenset(), {}))
TOOLS = [
    ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    ToolSpec("g", "", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
]


def markers_of(name: str) -> list[str]:
    """What may be a token in a vocabulary of the family: its markers, and those of its reasoning."""
    form = FORMATS[name](surroundings(vocabulary_of((), frozenset(), frozenset(), {})))
    texts = form.texts
    return list(dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text)))


def thoughts_of(name: str) -> tuple[str, ...]:
    """What the family reasons between."""
    form = FORMATS[name](surroundings(vocabulary_of((), frozenset(), frozenset(), {})))
    if not isinstance(form, CallFormat):
        return ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    return (form.reasoning.opener, form.reasoning.closer) if form.reasoning else ()


def surroundings(vocabulary: Vocabulary, opening: str = "", template: str = REASONS) -> Surroundings:
    """Of a model that reasons."""
    return Surroundings(template, opening, "", vocabulary)


class ByteTokenizer:
    """A token for each byte, one that ends a turn, and some markers. `stops`: those of them that end a turn too."""

    def __init__(self, markers: Sequence[str], stops: Sequence[str] = ()) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"<end>"] + [marker.encode() for marker in markers]
        self.stop_tokens = self.control_tokens = frozenset({256, *(257 + markers.index(stop) for stop in stops)})
        self.user_defined: Mapping[str, int] = {marker: 257 + index for index, marker in enumerate(markers)}
        self.bos: int | None = None
        self.text_bos: int | None = None
        self.special_texts: Mapping[str, str] = {}
        self.eos_token_id, self.bos_token_id = 256, None
        self.special_token_ids = [256, *self.user_defined.values()]
        found = sorted([*markers, "<end>"], key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, found)))

    @property
    def vocabulary(self) -> int:
        return len(self.tokens)

    @property
    def facts(self) -> Vocabulary:
        return vocabulary_of(tuple(self.tokens), self.stop_tokens, self.control_tokens, self.user_defined)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    def template_tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        place = 0
        for found in self._pattern.finditer(text):
            tokens += text[place : found.start()].encode()
            tokens.append(self.tokens.index(found[0].encode()))
            place = found.end()
        return tokens + list(text[place:].encode())

    def plain_tokens(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return self.tokens[token]

    def grammar_tokenizer(self) -> Any:
        return self._grammar_tokenizer

    @cached_property
    def _grammar_tokenizer(self) -> Any:
        return llguidance.LLTokenizer(TokenizerWrapper(self))


def pieces_of(text: str, markers: Sequence[str], cuts: Iterable[int]) -> list[bytes]:
    """The text in bytes, cut at the given places, and around every marker, which stays whole."""
    data = text.encode()
    whole = re.compile(b"|".join(re.escape(marker.encode()) for marker in markers) or b"(?!)")
    spans = [found.span() for found in whole.finditer(data)]
    inside = {place for begin, end in spans for place in range(begin + 1, end)}
    places = {0, len(data), *(cut for cut in cuts if cut < len(data)), *(place for span in spans for place in span)}
    return [data[a:b] for a, b in pairwise(sorted(places - inside))]


def read(
    name: str, text: str, *, ids: bool, cuts: Iterable[int] = (), calls: bool = True, stop: bool = True,
    tools: Sequence[ToolSpec] = TOOLS, opening: str = "", spelled: bool = False,
) -> list[TurnEvent]:  # fmt: skip
    """The events of a turn that was cut so. `ids`: each marker is a token; else text alone shows them. `spelled`: they
    come in pieces all the same."""
    markers = markers_of(name) if ids else []
    pieces = pieces_of(text, () if spelled else markers, cuts)
    known = {marker.encode(): token for token, marker in enumerate(markers)}
    vocabulary = vocabulary_of(
        (*known, b"<end>", *pieces), frozenset({len(known)}), frozenset({len(known)}),
        {marker: token for token, marker in enumerate(markers)},
    )  # fmt: skip
    parser = FORMATS[name](surroundings(vocabulary, opening)).parser(calls=calls, tools=tools)
    tokens = [known.get(piece, len(known) + 1 + index) for index, piece in enumerate(pieces)] + [len(known)] * stop
    return merged([*(event for token in tokens for event in parser.push(token)), *parser.finish()])
