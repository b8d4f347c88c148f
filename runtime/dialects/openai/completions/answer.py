"""Raw completions as a text completions answer: whole, or as the chunks of a stream. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.runtime.dialects.openai.completions.request import CompletionRequest, Wanted
from tenuto.runtime.dialects.openai.logprobs import TextLogprobs
from tenuto.runtime.engine.messages import RoundUsage, StopCause
from tenuto.runtime.http.sse import DONE, frame, json_line
from tenuto.runtime.loop.events import TextLogprob
from tenuto.runtime.loop.raw import RawPiece


@dataclass(slots=True)
class Text:
    """A text as it comes to be."""

    wanted: Wanted
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TextLogprob] = field(default_factory=list)

    def add(self, piece: RawPiece) -> None:
        """More of it has come."""
        self.pieces.append(piece.text)
        self.logprobs += piece.logprobs


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every answer and chunk of one request has alike."""

    id: str
    created: int
    model: str

    def around(self, choices: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The whole object."""
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }


def finish_reason(cause: StopCause | None) -> str:
    """Why a text ended."""
    return "length" if cause is StopCause.LIMIT else "stop"


def usage(figures: Sequence[RoundUsage]) -> dict[str, Any]:
    """What all texts took together."""
    prompt, completion = sum(of.prompt for of in figures), sum(of.sampled for of in figures)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(of.cached for of in figures)},
    }


def choice(index: int, text: Text, cause: StopCause | None, *, logprobs: bool) -> dict[str, Any]:
    """A text that is whole."""
    return {
        "text": text.wanted.before + "".join(text.pieces),
        "index": index,
        "logprobs": TextLogprobs().form(text.logprobs) if logprobs else None,
        "finish_reason": finish_reason(cause),
    }


class TextChunks:
    """One text as the chunks of a stream."""

    def __init__(self, envelope: Envelope, index: int, request: CompletionRequest) -> None:
        self._envelope, self._index, self._request = envelope, index, request
        self._logprobs = TextLogprobs()

    def opening(self) -> bytes:
        """The prompt, where it is to be repeated."""
        before = self._request.texts[self._index].before
        return self._chunk(before) if before else b""

    def piece(self, piece: RawPiece) -> bytes:
        """More of the text."""
        return self._chunk(piece.text, logprobs=self._logprobs.form(piece.logprobs) if self._request.logprobs else None)

    def ending(self, cause: StopCause | None) -> bytes:
        """Why it ended."""
        return self._chunk("", finish_reason(cause))

    def _chunk(self, text: str, finish: str | None = None, logprobs: dict[str, Any] | None = None) -> bytes:
        one = {"text": text, "index": self._index, "logprobs": logprobs, "finish_reason": finish}
        more = {"usage": None} if self._request.include_usage else {}
        return frame(json_line(self._envelope.around([one], **more)))


def closing(envelope: Envelope, request: CompletionRequest, figures: Sequence[RoundUsage]) -> bytes:
    """What ends a stream after all its texts."""
    if not request.include_usage:
        return DONE
    return frame(json_line(envelope.around([], usage=usage(figures)))) + DONE
