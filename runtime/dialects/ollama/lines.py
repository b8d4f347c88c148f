"""Answers as lines of JSON: a run's events one by one, or all of them as one object. Bytes out, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.ollama.answer import client_calls, ending, logprobs, timestamp
from tenuto.runtime.dialects.ollama.errors import ERRORS
from tenuto.runtime.dialects.ollama.shapes import GenerateAnswer, OllamaChatAnswer, OllamaMessageAnswer
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.http.sse import json_line, one_line
from tenuto.runtime.loop.events import Answer, ReasoningAdded, RunEvent, TextAdded, TextLogprob
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import RunStatus

LINE = b"\n"


@dataclass(frozen=True, slots=True)
class Form:
    """Where an answer's pieces stand. Of lines that come by the token, what stands around text and around reasoning."""

    shape: type[OllamaChatAnswer | GenerateAnswer]
    text: tuple[bytes, bytes]
    thinking: tuple[bytes, bytes]

    def said(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
        """The fields for what was said."""
        more: dict[str, Any] = {"thinking": thinking} if thinking else {}
        if self.shape is GenerateAnswer:
            return {"response": text, **more}
        if found := client_calls(calls):
            more["tool_calls"] = found
        return {"message": OllamaMessageAnswer(role="assistant", content=text, **more)}


CHAT = Form(
    OllamaChatAnswer,
    (b'"message":{"role":"assistant","content":', b"}"),
    (b'"message":{"role":"assistant","content":"","thinking":', b"}"),
)
GENERATE = Form(GenerateAnswer, (b'"response":', b""), (b'"response":"","thinking":', b""))


class Lines:
    """The lines of one answer. `began` is when, in seconds since the epoch."""

    def __init__(self, form: Form, model: str, began: float, *, shows_thinking: bool = True) -> None:
        self._form, self._shows_thinking = form, shows_thinking
        self._head: dict[str, Any] = {"model": model, "created_at": timestamp(began)}
        self._begin = b'{"model":%s,"created_at":%s,' % (json_line(model), json_line(self._head["created_at"]))
        self._has_shown = False

    def encode(self, event: RunEvent) -> bytes:
        """The line for one event; empty where a stream shows nothing of it."""
        match event:
            case TextAdded():
                self._has_shown = True
                return self.text(event.text, event.logprobs)
            case ReasoningAdded() if self._shows_thinking:
                self._has_shown = True
                before, after = self._form.thinking
                return self._begin + before + json_line(event.text) + after + b',"done":false}\n'
            case _:
                return b""

    def text(self, text: str, of: Sequence[TextLogprob] = ()) -> bytes:
        """The line for a piece of text; with none, a sign of life."""
        before, after = self._form.text
        figures = b',"logprobs":' + json_line(logprobs(of)) if of else b""
        return self._begin + before + json_line(text) + after + figures + b',"done":false}\n'

    def closing(self, answer: Answer, seconds: float) -> bytes:
        """What ends the stream after the run's last event: an answer that took so long.

        Calls are whole only now. A repeat of a request whose run has ended so long ago that its pieces are gone gets
        all here.
        """
        if answer.status is RunStatus.FAILED:
            return one_line(ERRORS.told_of_run(answer.error, answer.error_code, answer.run_id)[1].encode()) + LINE
        if self._has_shown:
            return self._line({**self._form.said("", "", answer.calls), **ending(answer, seconds)})
        return one_line(self.whole(answer, seconds).encode()) + LINE

    def whole(self, answer: Answer, seconds: float) -> Shape:
        """The unstreamed answer; it has not failed."""
        thinking = answer.reasoning if self._shows_thinking else ""
        more: dict[str, Any] = {"logprobs": logprobs(answer.logprobs)} if answer.logprobs else {}
        return self.end(answer.text, {**more, **ending(answer, seconds)}, thinking, answer.calls)

    def end(
        self, text: str, fields: dict[str, Any], thinking: str = "", calls: Sequence[ToolCall] = ()
    ) -> OllamaChatAnswer | GenerateAnswer:
        """An answer that is whole, with these fields of its end."""
        return self._form.shape(**self._head, **self._form.said(text, thinking, calls), **fields)

    def last(self, fields: dict[str, Any]) -> bytes:
        """The line of an end whose text has been shown."""
        return self._line({**self._form.said(""), **fields})

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        return one_line(ERRORS.told(exc).encode()) + LINE

    def _line(self, fields: dict[str, Any]) -> bytes:
        return one_line(self._form.shape(**self._head, **fields).encode()) + LINE
