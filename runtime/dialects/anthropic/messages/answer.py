"""How runs are told in a message: why it ended, its figures, and what stock clients do not know. No I/O."""

from collections.abc import Iterable, Sequence

from tenuto.runtime.dialects.anthropic.messages.blocks import Blocks, missed, whole
from tenuto.runtime.dialects.anthropic.messages.request import Shown
from tenuto.runtime.dialects.anthropic.messages.shapes import (
    AnswerBlock,
    EndFields,
    MessageAnswer,
    MessageUsage,
    StopReason,
    TenutoFields,
    ToolUseBlock,
)
from tenuto.runtime.loop import events as loop
from tenuto.runtime.loop.events import Answer, RunEvent
from tenuto.runtime.schema.answers import server_call, state_fields
from tenuto.runtime.schema.usage import cache_use
from tenuto.sessions.records import PauseReason


def message_id(leg_id: str) -> str:
    """The id by which this dialect knows an answer: one of its own for each request."""
    return f"msg_{leg_id}"


def message(answer: Answer, events: Sequence[RunEvent], shown: Shown) -> MessageAnswer:
    """The unstreamed response to what has told these events. The answer has not failed."""
    content = _content(answer, events, shown) or _content(answer, missed(answer), shown)
    end = ending(answer)
    return MessageAnswer(
        id=message_id(answer.leg_id),
        type="message",
        role="assistant",
        model=answer.model,
        content=content,
        stop_reason=end.stop_reason,
        stop_sequence=end.stop_sequence,
        usage=usage(answer),
        tenuto=tenuto(answer),
    )


def _content(answer: Answer, events: Iterable[RunEvent], shown: Shown) -> list[AnswerBlock]:
    """All that was told, but for calls that were cut, or that nobody is to make yet."""
    blocks = Blocks(shown)
    told = whole([*(piece for event in events for piece in blocks.take(event)), *blocks.finish()])
    wanted = {call.id for call in answer.calls}
    return [block for block in told if not isinstance(block, ToolUseBlock) or block.id in wanted]


def ending(answer: Answer) -> EndFields:
    """Why it ended, in the words that stock clients know."""
    is_stop_string = answer.stop_reason == loop.StopReason.STOP_STRING
    return EndFields(stop_reason=_stop_reason(answer), stop_sequence=answer.stop_string if is_stop_string else None)


def _stop_reason(answer: Answer) -> StopReason:
    if answer.pause is not None:
        return "tool_use" if answer.pause.reason is PauseReason.CLIENT_TOOL else "pause_turn"
    match answer.stop_reason:
        case loop.StopReason.LENGTH:
            return "max_tokens"
        case loop.StopReason.STOP_STRING:
            return "stop_sequence"
        case _:
            return "end_turn"


def usage(answer: Answer) -> MessageUsage:
    """What this request took."""
    return MessageUsage(
        input_tokens=answer.usage.prompt - answer.usage.cached,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=answer.usage.cached,
        output_tokens=answer.usage.completion,
        tenuto=cache_use(answer.usage, answer.run_usage),
    )


def tenuto(answer: Answer) -> TenutoFields:
    """The session, the server's tool calls, and how the run stands."""
    calls = [server_call(call) for call in answer.server_calls]
    return TenutoFields(session_id=answer.session_id, agentic_tool_calls=calls, **state_fields(answer))
