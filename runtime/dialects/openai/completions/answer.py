"""Raw completions as a text completions answer: whole, or as the chunks of a stream. No I/O.

What is made of texts under way is a form: OpenAI's is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.completions.request import CompletionRequest, TextRequest
from tenuto.runtime.dialects.openai.completions.shapes import (
    CompletionAnswer,
    CompletionEnvelope,
    CompletionFields,
    FinishReason,
    TextChoiceAnswer,
)
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.logprobs import TextLogprobs
from tenuto.runtime.dialects.openai.usage import text_usage
from tenuto.runtime.http.sse import DONE, frame, json_line, one_line
from tenuto.runtime.loop.events import RoundUsage, TextLogprob
from tenuto.runtime.loop.raw import RawPiece, RawRun


@dataclass(slots=True)
class Text:
    """A text as it comes to be."""

    wanted: TextRequest
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TextLogprob] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, piece: RawPiece) -> None:
        """More of it has come."""
        self.pieces.append(piece.text)
        self.logprobs += piece.logprobs
        self.tokens += piece.tokens


class TextForm(Protocol):
    """What is sent of the texts of one request, each named by its index."""

    def whole(self, texts: Sequence[Text], runs: Sequence[RawRun]) -> bytes:
        """The unstreamed answer in JSON, once all texts are whole."""

    def opening(self, index: int) -> bytes:
        """What comes before a text."""

    def piece(self, index: int, piece: RawPiece) -> bytes:
        """More of a text."""

    def ending(self, index: int, run: RawRun) -> bytes:
        """What comes after a text that has not failed."""

    def closing(self, runs: Sequence[RawRun]) -> bytes:
        """What comes after all texts."""

    def failure(self, error: TenutoError) -> bytes:
        """What comes instead, where a text has failed."""


def finish_reason(run: RawRun) -> FinishReason:
    """Why a text ended."""
    return "length" if run.was_cut else "stop"


class CompletionForm:
    """OpenAI's form."""

    def __init__(self, wanted: CompletionRequest, envelope: CompletionEnvelope) -> None:
        self._wanted, self._envelope = wanted, envelope
        figures, logprobs = wanted.include_usage, wanted.logprobs
        self._chunks = [
            TextChunks(envelope, index, include_usage=figures, logprobs=logprobs) for index in range(len(wanted.texts))
        ]

    def whole(self, texts: Sequence[Text], runs: Sequence[RawRun]) -> bytes:
        """The unstreamed answer, once all texts are whole."""
        choices = [
            TextChoiceAnswer(
                text=text.wanted.before + "".join(text.pieces),
                index=index,
                logprobs=TextLogprobs().form(text.logprobs) if self._wanted.logprobs else None,
                finish_reason=finish_reason(run),
            )
            for index, (run, text) in enumerate(zip(runs, texts, strict=True))
        ]
        usage = text_usage([run.usage for run in runs])
        return CompletionAnswer(**dict(self._envelope), choices=choices, usage=usage).encode()

    def opening(self, index: int) -> bytes:
        """The prompt, where it is to be repeated; none otherwise."""
        return self._chunks[index].echo(self._wanted.texts[index].before)

    def piece(self, index: int, piece: RawPiece) -> bytes:
        """More of a text."""
        return self._chunks[index].piece(piece)

    def ending(self, index: int, run: RawRun) -> bytes:
        """Why a text ended."""
        return self._chunks[index].ending(finish_reason(run))

    def closing(self, runs: Sequence[RawRun]) -> bytes:
        """The figures, where they are asked for."""
        return closing(self._envelope, [run.usage for run in runs] if self._wanted.include_usage else None)

    def failure(self, error: TenutoError) -> bytes:
        """What went wrong."""
        return frame(one_line(ERRORS.told(error).encode())) + DONE


class TextChunks:
    """One text as the chunks of a stream. Of chunks that come by the token, all is encoded once but what it brings."""

    def __init__(self, envelope: CompletionEnvelope, index: int, *, include_usage: bool, logprobs: bool) -> None:
        self._index, self._include_usage = index, include_usage
        self._logprobs = TextLogprobs() if logprobs else None
        self._head = _head(envelope)
        self._before_text = b"data: " + self._head + b',"choices":[{"text":'
        self._middle = b',"index":%d,"logprobs":' % index
        self._end = b',"finish_reason":null}]%s}\n\n' % (b',"usage":null' if include_usage else b"")
        self._after_text = self._middle + b"null" + self._end

    def echo(self, prompt: str) -> bytes:
        """The prompt, where it is to be repeated; none otherwise."""
        return self._text(prompt) if prompt else b""

    def piece(self, piece: RawPiece) -> bytes:
        """More of the text."""
        if self._logprobs is None:
            return self._text(piece.text)
        logprobs = json_line(self._logprobs.form(piece.logprobs))
        return self._before_text + json_line(piece.text) + self._middle + logprobs + self._end

    def ending(self, reason: FinishReason) -> bytes:
        """Why it ended."""
        choice = TextChoiceAnswer(text="", index=self._index, logprobs=None, finish_reason=reason)
        more: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return _frame(self._head, CompletionFields(choices=[choice], **more))

    def _text(self, text: str) -> bytes:
        return self._before_text + json_line(text) + self._after_text


def closing(envelope: CompletionEnvelope, figures: Sequence[RoundUsage] | None) -> bytes:
    """What ends a stream after all its texts. `figures` None: they are not asked for."""
    if figures is None:
        return DONE
    return _frame(_head(envelope), CompletionFields(choices=[], usage=text_usage(figures))) + DONE


def _head(envelope: CompletionEnvelope) -> bytes:
    return one_line(envelope.encode())[:-1]


def _frame(head: bytes, fields: CompletionFields) -> bytes:
    return frame(head + b"," + one_line(fields.encode())[1:])
