"""From the loop's values to the forms of the schema: a run's events, calls and figures."""

from math import isfinite
from typing import assert_never

from pydantic_core import to_json

from tenuto.runtime.loop import events as loop
from tenuto.runtime.schema import events as told
from tenuto.runtime.schema.events import Bytes, CallAnswer, RoundFigures, TokenLogprob
from tenuto.runtime.schema.questions import question_answer
from tenuto.sessions.items import ToolCall

_TEXT = b'{"type":"text_added","number":%d,"round":%d,"text":%s,"logprobs":[]}'
_REASONING = b'{"type":"reasoning_added","number":%d,"round":%d,"text":%s}'


def told_event(number: int, event: loop.RunEvent) -> told.Event:
    """An event with its number. Its type is the schema's: the loop may name its classes as it likes."""
    match event:
        case loop.TextAdded():
            logprobs = [_logprob(one) for one in event.logprobs]
            return told.TextAdded(number=number, round=event.round, text=event.text, logprobs=logprobs)
        case loop.ReasoningAdded():
            return told.ReasoningAdded(number=number, round=event.round, text=event.text)
        case loop.ClientCallStarted():
            return told.ClientCallStarted(
                number=number, round=event.round, index=event.index, call_id=event.call_id, name=event.name
            )
        case loop.ClientCallArguments():
            return told.ClientCallArguments(number=number, round=event.round, index=event.index, text=event.text)
        case loop.ToolCalling():
            return told.ToolCalling(number=number, round=event.round, call=call_answer(event.call))
        case loop.ToolReturned():
            return told.ToolReturned(
                number=number,
                round=event.round,
                call=call_answer(event.call),
                status=event.status,
                result=event.result,
            )
        case loop.ToolTold():
            return _tool_told(number, event)
        case loop.ServerSampled():
            return _server_sampled(number, event)
        case loop.RoundEnded():
            return told.RoundEnded(number=number, round=event.round, usage=round_figures(event.usage))
        case loop.RunPaused():
            return told.RunPaused(
                number=number,
                reason=event.reason,
                round=event.round,
                calls=[call_answer(call) for call in event.calls],
                expires_at=event.expires_at,
                pause_id=event.pause_id,
                question=None if event.question is None else question_answer(event.question),
            )
        case loop.RunDone():
            return told.RunDone(
                number=number,
                status=event.status,
                stop_reason=event.stop_reason,
                error=event.error,
                error_code=event.error_code,
            )
        case _:
            assert_never(event)


def _tool_told(number: int, event: loop.ToolTold) -> told.ToolTold:
    return told.ToolTold(
        number=number,
        round=event.round,
        call_id=event.call_id,
        name=event.name,
        text=event.text,
        done=event.done,
        total=event.total,
        level=event.level,
    )


def _server_sampled(number: int, event: loop.ServerSampled) -> told.ServerSampled:
    return told.ServerSampled(
        number=number,
        round=event.round,
        call_id=event.call_id,
        server=event.server,
        asked=event.asked,
        text=event.text,
        calls=[call_answer(call) for call in event.calls],
        usage=round_figures(event.usage),
    )


def encoded(number: int, event: loop.RunEvent) -> bytes:
    """An event as JSON. Plain text comes by the token, and so without the detour over its model."""
    match event:
        case loop.TextAdded(logprobs=()):
            return _TEXT % (number, event.round, to_json(event.text))
        case loop.ReasoningAdded():
            return _REASONING % (number, event.round, to_json(event.text))
        case _:
            return told_event(number, event).encode()


def call_answer(call: ToolCall) -> CallAnswer:
    """A tool call."""
    return CallAnswer(id=call.id, name=call.name, arguments=call.arguments, server=call.server)


def round_figures(usage: loop.RoundUsage) -> RoundFigures:
    """What a round took."""
    return RoundFigures(
        prompt=usage.prompt,
        computed=usage.computed,
        cached=usage.cached,
        new=usage.new,
        sampled=usage.sampled,
        residency=usage.residency,
        miss_reason=usage.miss_reason,
        waited_s=usage.waited_s,
        first_token_s=usage.first_token_s,
        total_s=usage.total_s,
    )


def _logprob(one: loop.TextLogprob) -> TokenLogprob:
    top = [(text, text_or_bytes(data), _finite(logprob)) for text, data, logprob in one.top]
    return TokenLogprob(token=one.token, data=text_or_bytes(one.data), logprob=_finite(one.logprob), top=top)


def _finite(logprob: float) -> float | None:
    return logprob if isfinite(logprob) else None


def text_or_bytes(data: bytes) -> Bytes:
    """The text, or the bytes where a character is broken: a token may hold a part of one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
