"""Texts and their vectors, alike in every dialect: encoded in a thread, embedded while the client is there, written."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenuto.pipelines.embedding import TextTokens, Vectors, normalised
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_body, understood
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.loop.embeddings import check_lengths
from tenuto.runtime.loop.models import EmbeddingModel
from tenuto.runtime.loop.port import LoopPort

_AT_ONCE = 1 << 14
"""More numbers than that become JSON in threads, some vectors after the others."""

Encode = Callable[[], list[TextTokens]]


class Asks(Protocol):
    """What a request asks, understood."""

    @property
    def model(self) -> EmbeddingModel:
        """The model that it asks."""


A = TypeVar("A", bound=Asks)


@asynccontextmanager
async def asking(request: Request, runner: LoopPort, read: Callable[[bytes], A]) -> AsyncIterator[A]:
    """What a reader that finds a model makes of a request's body, once that model is loaded, and in use for the block.
    Raises what it does."""
    body = await read_body(request)

    async def taken() -> A:
        asked = await understood(body, read)
        asked.model.uses.take()
        return asked

    asked = await runner.models.with_loaded(taken, principal_of(request).id)
    try:
        yield asked
    finally:
        asked.model.uses.give_back()


async def embedded(
    request: Request, runner: LoopPort, model: EmbeddingModel, encode: Encode, field: str
) -> tuple[Vectors, int]:
    """A row for each text that `encode` gives, and how many tokens they have. `field` is what holds the texts.

    The model is in use.

    Raises:
        TenutoError: what a text is refused for, naming it; or why nothing was computed.
        ClientGone: the client went away; nothing more is computed for it.
    """
    texts = await anyio.to_thread.run_sync(_encoded, model, encode, field)
    vectors = await while_connected(request.receive, None, partial(runner.embed, principal_of(request), model, texts))
    return vectors, sum(map(len, texts))


def shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first numbers of each vector, with length 1 again."""
    return vectors if dimensions is None else normalised(vectors[:, :dimensions])


def written(head: bytes, vectors: Vectors, entry: Callable[[int], bytes], tail: bytes) -> Response:
    """A JSON answer that holds a list with an entry for each vector."""
    step = max(1, _AT_ONCE // vectors.shape[1])
    pages = _pages(head, len(vectors), step, entry, tail)
    if len(vectors) <= step:
        return Response(b"".join(pages), media_type="application/json")
    return StreamingResponse(pages, media_type="application/json")  # which makes each in a worker thread


def _encoded(model: EmbeddingModel, encode: Encode, field: str) -> Sequence[TextTokens]:
    texts = encode()
    check_lengths(model, texts, field)
    return texts


def _pages(head: bytes, count: int, step: int, entry: Callable[[int], bytes], tail: bytes) -> Iterator[bytes]:
    yield head
    for begin in range(0, count, step):
        yield (b"," if begin else b"") + b",".join(map(entry, range(begin, min(begin + step, count))))
    yield tail
