"""A run's events as the chunks of a chat completions stream. Bytes out, no I/O."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.chat.answer import (
    choices_fields,
    client_calls,
    finish_reason,
    given,
    run_fields,
)
from tenuto.runtime.dialects.openai.chat.shapes import (
    ApprovalFields,
    AskedTool,
    ChunkChoice,
    ChunkEnvelope,
    ChunkFields,
    Delta,
    FinishReason,
    FunctionDelta,
    InputFields,
    ProgressData,
    ProgressFields,
    RunFields,
    ToolCallDelta,
)
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.logprobs import LogprobsAnswer, chat_logprobs
from tenuto.runtime.dialects.openai.usage import usage
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.http.sse import DONE, frame, json_line, one_line
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RoundEnded,
    RunDone,
    RunEvent,
    RunPaused,
    ServerSampled,
    TextAdded,
    ToolCalling,
    ToolReturned,
    ToolTold,
)
from tenuto.runtime.schema.questions import question_answer
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, RunStatus


def failed(exc: TenutoError) -> bytes:
    """What ends a stream where something else than the run failed."""
    return frame(one_line(ERRORS.told(exc).encode())) + DONE


class ChunkEncoder:
    """A run's events to the frames of one stream.

    What is the same in all chunks is encoded once; of chunks that come by the token, all but what the token brings.

    `completion` is the answer's id, and `index` the run's choice in it.
    """

    def __init__(
        self,
        completion: str,
        run_id: str,
        session_id: str,
        model: str,
        created_at: float,
        *,
        named_events: bool,
        include_usage: bool,
        logprobs: bool = False,
        index: int = 0,
    ) -> None:
        self._run_id, self._session_id = run_id, session_id
        self._named, self._include_usage = named_events, include_usage
        self._logprobs, self._index = logprobs, index
        self._has_shown = False
        envelope = ChunkEnvelope(
            id=completion,
            object="chat.completion.chunk",
            created=int(created_at),
            model=model,
        )
        self._head = one_line(envelope.encode())[:-1]
        before = b"data: " + self._head + b',"choices":[{"index":%d,"delta":{' % index
        self._end = b',"finish_reason":null}]' + self._no_usage() + b"}\n\n"
        self._after_text = b'},"logprobs":null' + self._end
        self._before_text = before + b'"content":'
        self._before_reasoning = before + b'"reasoning_content":'
        self._before_call = before + b'"tool_calls":[{"index":'

    def opening(self) -> bytes:
        """The first chunk: who speaks."""
        return self._chunk(Delta(role="assistant", content=""))

    def encode(self, event: RunEvent) -> bytes:
        """The frames for one event; empty where a chunk shows nothing of it."""
        match event:
            case TextAdded() if self._logprobs:
                self._has_shown = True
                return self._text_with(chat_logprobs(event.logprobs), event.text)
            case TextAdded():
                self._has_shown = True
                return self._before_text + json_line(event.text) + self._after_text
            case ReasoningAdded():
                self._has_shown = True
                return self._before_reasoning + json_line(event.text) + self._after_text
            case ClientCallArguments():
                return self._arguments(event.index, event.text)
            case ClientCallStarted():
                self._has_shown = True
                function = FunctionDelta(name=event.name, arguments="")
                return self._tool_call(
                    ToolCallDelta(index=event.index, id=event.call_id, type="function", function=function)
                )
            case ToolCalling():
                return self._progress(event)
            case ToolReturned():
                return self._progress(event, content=event.result, status=event.status)
            case RunPaused(question=Question() as question):
                return self._input(event, question)
            case RunPaused(reason=PauseReason.APPROVAL):
                return self._approval(event)
            case RunPaused() | RunDone() | ToolTold() | ServerSampled() | RoundEnded():
                return b""

    def closing(self, answer: Answer) -> bytes:
        """What ends the stream after the run's last event."""
        if answer.status is RunStatus.FAILED:
            _, error = ERRORS.told_of_run(answer.error, answer.error_code, self._run_id)
            return frame(one_line(error.encode())) + DONE
        return self.ending(answer, run_fields(answer)) + self.figures([answer]) + DONE

    def ending(self, answer: Answer, runs: RunFields | None = None) -> bytes:
        """What ends the choice; the answer has not failed."""
        return self._missed(answer) + self._chunk(Delta(), finish_reason(answer), runs)

    def figures(self, of: Sequence[Answer]) -> bytes:
        """The chunk with the usage, where it is asked for."""
        return self._frame(ChunkFields(choices=[], usage=usage(of))) if self._include_usage else b""

    def closing_of(self, answers: Sequence[Answer]) -> bytes:
        """What ends a stream of several choices, each of which has ended."""
        state = self._frame(ChunkFields(choices=[], **given(choices_fields(answers))))
        return state + self.figures(answers) + DONE

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        return failed(exc)

    def _missed(self, answer: Answer) -> bytes:
        """The answer at once, to a repeat of a request whose run has ended so long ago that its pieces are gone."""
        if self._has_shown:
            return b""
        pieces: list[RunEvent] = [ReasoningAdded(0, answer.reasoning)] if answer.reasoning else []
        if answer.text:
            pieces.append(TextAdded(0, answer.text, tuple(answer.logprobs)))
        for index, call in enumerate(client_calls(answer)):
            pieces.append(ClientCallStarted(0, index, call.id, call.name))
            pieces.append(ClientCallArguments(0, index, call.arguments))
        return b"".join(self.encode(piece) for piece in pieces)

    def _text_with(self, logprobs: LogprobsAnswer, text: str) -> bytes:
        return self._before_text + json_line(text) + b'},"logprobs":' + json_line(logprobs) + self._end

    def _arguments(self, index: int, text: str) -> bytes:
        function = b'%d,"function":{"arguments":%s}}]' % (index, json_line(text))
        return self._before_call + function + self._after_text

    def _no_usage(self) -> bytes:
        return b',"usage":null' if self._include_usage else b""

    def _tool_call(self, call: ToolCallDelta) -> bytes:
        return self._chunk(Delta(tool_calls=[call]))

    def _chunk(
        self,
        delta: Delta,
        finish: FinishReason | None = None,
        runs: RunFields | None = None,
    ) -> bytes:
        choice = ChunkChoice(index=self._index, delta=delta, logprobs=None, finish_reason=finish)
        more: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return self._frame(ChunkFields(choices=[choice], **more, **(given(runs) if runs else {})))

    def _frame(self, fields: Shape, event: str | None = None) -> bytes:
        return frame(self._head + b"," + one_line(fields.encode())[1:], event=event)

    def _progress(self, event: ToolCalling | ToolReturned, **result: str) -> bytes:
        """Also a valid chunk without choices: OpenAI's client reads every `data` as a chunk, whatever its event."""
        if not self._named:
            return b""
        call = event.call
        fields = ProgressFields(
            choices=[],
            type="agentic_tool_call_progress",
            round=event.round,
            tool_name=call.name,
            phase="complete" if result else "calling",
            data=ProgressData(tool_type="custom", call_id=call.id, arguments=call.arguments, **result),
        )
        return self._frame(fields, event=fields.type)

    def _approval(self, pause: RunPaused) -> bytes:
        if not self._named:
            return b""
        call = pause.calls[0]
        fields = ApprovalFields(
            choices=[],
            type="agentic_tool_approval_required",
            approval_id=pause.pause_id,
            session_id=self._session_id,
            round=pause.round,
            tool=AskedTool(source="mcp", kind="custom", label=call.name, name=call.name),
            arguments=_parsed(call.arguments),
            expires_at=pause.expires_at,
        )
        return self._frame(fields, event=fields.type)

    def _input(self, pause: RunPaused, question: Question) -> bytes:
        if not self._named:
            return b""
        call = pause.calls[0]
        fields = InputFields(
            choices=[],
            type="agentic_input_required",
            input_id=pause.pause_id,
            session_id=self._session_id,
            round=pause.round,
            tool=AskedTool(source="mcp", kind="custom", label=call.name, name=call.name),
            question=question_answer(question),
            expires_at=pause.expires_at,
        )
        return self._frame(fields, event=fields.type)


def _parsed(arguments: str) -> Any:
    """What they say where they are JSON, else their text."""
    try:
        return from_json(arguments)
    except ValueError:
        return arguments
