"""POST /tokenize, /detokenize and /apply-template, as llama-server has them: text to tokens and back, and a chat as the
model would read it, in tokens or as text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import anyio
from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.json_bounds import MOST_PROMPT_VALUES
from tenuto.pipelines.base import Codec
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.openai.chat.request import read_chat
from tenuto.runtime.dialects.prompts import prompt_tokens
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import Wire, read_body, read_wire, received, understood
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.schema.conversion import text_or_bytes
from tenuto.sessions.tokens import Tokens
from tenuto.sessions.transfer import in_pages

MOST_CHARACTERS = 2 << 20
_AT_ONCE = 10_000
"""More tokens than that become JSON in threads, a page after the other."""
_PAGE = 4096


class TokenizeBody(Wire):
    """Text as `content` or `prompt`, or the `messages` and `tools` of a chat, which its own reader reads."""

    content: Annotated[str, Field(max_length=MOST_CHARACTERS)] | None = None
    prompt: Annotated[str, Field(max_length=MOST_CHARACTERS)] | None = None
    messages: list[Any] | None = None
    model: str | None = None
    add_special: bool | None = None
    with_pieces: bool | None = None
    parse_special: bool | None = None


class DetokenizeBody(Wire):
    """Tokens, by their ids."""

    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]]
    model: str | None = None


@dataclass(slots=True)
class PieceAnswer:
    """A token with its text, or with its bytes where they are no text by themselves."""

    id: int
    piece: str | list[int]


class TokensAnswer(Shape):
    """Tokens, with `with_pieces` each with its text."""

    tokens: list[int] | list[PieceAnswer]


class TextAnswer(Shape):
    """The text of tokens."""

    content: str


class PromptAnswer(Shape):
    """A chat as the model would read it."""

    prompt: str


@dataclass(frozen=True, slots=True)
class TokenizeApi:
    """The endpoints."""

    runner: LoopPort

    async def tokenize(self, request: Request) -> Response:
        """Tokenise a text, or a chat as the model would read it."""
        body = await read_body(request)
        wire = await understood(body, partial(read_wire, TokenizeBody))
        given = [name for name in ("content", "prompt", "messages") if getattr(wire, name) is not None]
        if len(given) != 1:
            raise InvalidRequest("give one of content, prompt and messages", given[-1] if given else "content")
        tokens: Sequence[int]
        if wire.messages is not None:
            tokens = await self._preview(await self._turn(body, request), request)
            codec = await self._codec(wire.model, request)
        else:
            codec = await self._codec(wire.model, request)
            tokens = await anyio.to_thread.run_sync(_text_tokens, codec, wire)
        pages = _tokens_json(codec, tokens, with_pieces=wire.with_pieces is True)
        if len(tokens) > _AT_ONCE:
            return StreamingResponse(pages, media_type="application/json")  # which makes each in a worker thread
        return Response(b"".join(pages), media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        """The text of tokens, control tokens included."""
        wire = await received(request, partial(read_wire, DetokenizeBody, most_values=MOST_PROMPT_VALUES))
        codec = await self._codec(wire.model, request)
        size = codec.info.vocabulary
        for index, token in enumerate(wire.tokens):
            if token >= size:
                param = f"tokens[{index}]"
                raise InvalidRequest(f"{param}: there is no token {token}; token ids go from 0 to {size - 1}", param)
        return answered(TextAnswer(content=await _text(codec, wire.tokens)))

    async def apply_template(self, request: Request) -> Response:
        """A chat as the model would read it, control tokens included."""
        turn = await self._turn(await read_body(request), request)
        tokens = await self._preview(turn, request)
        return answered(PromptAnswer(prompt=await _text(await self._codec(turn.model, request), tokens)))

    async def _preview(self, turn: Turn, request: Request) -> Tokens:
        return await while_there(request.receive, turn, partial(self.runner.preview, turn))

    async def _codec(self, model: str | None, request: Request) -> Codec:
        async with self.runner.models.using(model or None, principal_of(request).id) as found:
            return found.codec

    async def _turn(self, body: bytes, request: Request) -> Turn:
        reader = partial(read_chat, headers=request.headers, principal=principal_of(request))
        return (await understood(body, reader)).turn


async def _text(codec: Codec, tokens: Sequence[int]) -> str:
    text = partial(codec.detokenize, tokens)
    return await anyio.to_thread.run_sync(text) if len(tokens) > _AT_ONCE else text()


def _text_tokens(codec: Codec, wire: TokenizeBody) -> tuple[int, ...]:
    if wire.parse_special:
        raise UnsupportedParameter(
            "parse_special: text never becomes control tokens; use messages, or token ids in /v1/completions",
            "parse_special",
        )
    text = wire.content if wire.content is not None else wire.prompt or ""
    return prompt_tokens(codec, text) if wire.add_special else tuple(codec.tokenize(text))


def _tokens_json(codec: Codec, tokens: Sequence[int], *, with_pieces: bool) -> Iterator[bytes]:
    yield b'{"tokens":['
    yield from in_pages(tokens, partial(_with_pieces, codec) if with_pieces else to_json, _PAGE)
    yield b"]}"


def _with_pieces(codec: Codec, tokens: Sequence[int]) -> bytes:
    """Each token with its text, or with its bytes where they are no text by themselves."""
    return to_json([PieceAnswer(token, text_or_bytes(codec.piece(token))) for token in tokens])
