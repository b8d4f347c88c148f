"""A run's events as the events of a message's stream. Bytes out, no I/O."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.anthropic.errors import ERRORS, MessagesError
from tenuto.runtime.dialects.anthropic.messages.answer import ending, message_id, tenuto, usage
from tenuto.runtime.dialects.anthropic.messages.blocks import Added, Blocks, Closed, Opened, Piece, missed
from tenuto.runtime.dialects.anthropic.messages.request import Shown
from tenuto.runtime.dialects.anthropic.messages.shapes import (
    AnswerBlock,
    BlockStart,
    BlockStop,
    McpToolUseBlock,
    MessageAnswer,
    MessageDelta,
    MessageInput,
    MessageStart,
    MessageStop,
    MessageToolApproval,
    MessageToolProgress,
    MessageUsage,
    Ping,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.http.sse import frame, json_line, one_line
from tenuto.runtime.loop.events import Answer, RunEvent, RunPaused, ToolCalling, ToolReturned
from tenuto.runtime.schema.questions import question_answer
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, RunStatus

_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%s:%s}}\n\n'
_PIECES: dict[type[AnswerBlock], bytes] = {
    TextBlock: b'"text_delta","text"',
    ThinkingBlock: b'"thinking_delta","thinking"',
    ToolUseBlock: b'"input_json_delta","partial_json"',
    McpToolUseBlock: b'"input_json_delta","partial_json"',
}
_SIGNATURE = b'"signature_delta","signature"'


def _event(shape: Any) -> bytes:
    """An event that has its type's name."""
    return frame(one_line(shape.encode()), event=shape.type)


PING = _event(Ping(type="ping"))


def failed(exc: TenutoError) -> bytes:
    """What ends a stream that has not begun."""
    return _event(ERRORS.told(exc))


class EventEncoder:
    """A run's events to the frames of one stream. `request_id` is the request's, for an error in the midst of it."""

    def __init__(self, request_id: str, session_id: str, shown: Shown, *, named_events: bool) -> None:
        self._request_id, self._session_id, self._named = request_id, session_id, named_events
        self._blocks = Blocks(shown)
        self._piece = b""

    def opening(self, answer: Answer) -> bytes:
        """The first event: what there is of the answer before the model has read anything."""
        start = MessageAnswer(
            id=message_id(answer.leg_id),
            type="message",
            role="assistant",
            model=answer.model,
            content=[],
            stop_reason=None,
            stop_sequence=None,
            usage=MessageUsage(
                input_tokens=0, cache_creation_input_tokens=0, cache_read_input_tokens=0, output_tokens=0
            ),
            tenuto=tenuto(answer),
        )
        return _event(MessageStart(type="message_start", message=start))

    def encode(self, event: RunEvent) -> bytes:
        """The frames for one event; empty where a stream shows nothing of it."""
        match event:
            case ToolCalling():
                return self._progress(event) + self._encoded(self._blocks.take(event))
            case ToolReturned():
                told = self._progress(event, content=event.result, status=event.status)
                return told + self._encoded(self._blocks.take(event))
            case RunPaused(question=Question() as question):
                return self._input(event, question)
            case RunPaused(reason=PauseReason.APPROVAL):
                return self._approval(event)
            case _:
                return self._encoded(self._blocks.take(event))

    def closing(self, answer: Answer) -> bytes:
        """What ends the stream after the run's last event."""
        if answer.status is RunStatus.FAILED:
            _, error = ERRORS.told_of_run(answer.error, answer.error_code, answer.run_id)
            return self._error(error)
        rest = b"" if self._blocks.count else b"".join(map(self.encode, missed(answer)))
        end = MessageDelta(type="message_delta", delta=ending(answer), usage=usage(answer), tenuto=tenuto(answer))
        return rest + self._encoded(self._blocks.finish()) + _event(end) + _event(MessageStop(type="message_stop"))

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        return self._error(ERRORS.told(exc))

    def _encoded(self, pieces: Iterable[Piece]) -> bytes:
        return b"".join(map(self._frame, pieces))

    def _frame(self, piece: Piece) -> bytes:
        match piece:
            case Added():
                return _DELTA % (piece.index, self._piece, json_line(piece.text))
            case Opened():
                self._piece = _PIECES.get(type(piece.block), b"")  # a result comes whole
                return _event(BlockStart(type="content_block_start", index=piece.index, content_block=piece.block))
            case Closed():
                stop = _event(BlockStop(type="content_block_stop", index=piece.index))
                if piece.signature is None:
                    return stop
                return _DELTA % (piece.index, _SIGNATURE, json_line(piece.signature)) + stop

    def _error(self, error: Shape) -> bytes:
        assert isinstance(error, MessagesError)
        return _event(error.model_copy(update={"request_id": self._request_id}))

    def _progress(self, event: ToolCalling | ToolReturned, **result: str) -> bytes:
        if not self._named:
            return b""
        return _event(
            MessageToolProgress(
                type="agentic_tool_call_progress",
                round=event.round,
                tool_name=event.call.name,
                phase="complete" if result else "calling",
                call_id=event.call.id,
                arguments=event.call.arguments,
                **result,
            )
        )

    def _approval(self, pause: RunPaused) -> bytes:
        if not self._named:
            return b""
        call = pause.calls[0]
        return _event(
            MessageToolApproval(
                type="agentic_tool_approval_required",
                approval_id=pause.pause_id,
                session_id=self._session_id,
                round=pause.round,
                tool_name=call.name,
                arguments=_parsed(call.arguments),
                expires_at=pause.expires_at,
            )
        )

    def _input(self, pause: RunPaused, question: Question) -> bytes:
        if not self._named:
            return b""
        return _event(
            MessageInput(
                type="agentic_input_required",
                input_id=pause.pause_id,
                session_id=self._session_id,
                round=pause.round,
                tool_name=pause.calls[0].name,
                question=question_answer(question),
                expires_at=pause.expires_at,
            )
        )


def _parsed(arguments: str) -> Any:
    """What they say where they are JSON, else their text."""
    try:
        return from_json(arguments)
    except ValueError:
        return arguments
