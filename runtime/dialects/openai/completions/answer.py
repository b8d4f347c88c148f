"""Raw completions as a text completions answer: whole, or as the chunks of a stream. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.runtime.dialects.openai.completions.request import TextRequest
from tenuto.runtime.dialects.openai.completions.shapes import (
    CompletionAnswer,
    CompletionEnvelope,
    CompletionFields,
    FinishReason,
    TextChoiceAnswer,
)
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

    def add(self, piece: RawPiece) -> None:
        """More of it has come."""
        self.pieces.append(piece.text)
        self.logprobs += piece.logprobs


def finish_reason(run: RawRun) -> FinishReason:
    """Why a text ended."""
    return "length" if run.was_cut else "stop"


def completion_answer(
    envelope: CompletionEnvelope, texts: Sequence[Text], runs: Sequence[RawRun], *, logprobs: bool
) -> CompletionAnswer:
    """The unstreamed answer, once all texts are whole."""
    choices = [
        TextChoiceAnswer(
            text=text.wanted.before + "".join(text.pieces),
            index=index,
            logprobs=TextLogprobs().form(text.logprobs) if logprobs else None,
            finish_reason=finish_reason(run),
        )
        for index, (run, text) in enumerate(zip(runs, texts, strict=True))
    ]
    return CompletionAnswer(**dict(envelope), choices=choices, usage=text_usage([run.usage for run in runs]))


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
