"""What a run does as log messages to the MCP client that waits for it, by the level that this wants. No transport.

A client of the older protocol sets one level for its connection; since 2026-07-28 each request says its own, and none
means no messages. Messages come at a bounded rate: what is over it is counted in the next one.
"""

import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, get_args

import mcp.types as t
from mcp.server.connection import allowed_log_levels

from tenuto.runtime.mcp.server_base import Context
from tenuto.runtime.schema.events import (
    Event,
    RoundEnded,
    RunDone,
    RunPaused,
    ServerSampled,
    ToolCalling,
    ToolReturned,
    ToolTold,
)
from tenuto.sessions.records import RunStatus

LEVELS: tuple[t.LoggingLevel, ...] = get_args(t.LoggingLevel)
"""From the least to the most severe."""
UNSET: t.LoggingLevel = "warning"
"""For a client of the older protocol that has set none."""
LOGGER = "tenuto.run"
BURST = 50
PER_S = 10.0

Send = Callable[[t.LoggingLevel, dict[str, Any]], Awaitable[None]]


def at_least(level: t.LoggingLevel) -> frozenset[t.LoggingLevel]:
    """A level and those that are more severe."""
    return frozenset(LEVELS[LEVELS.index(level) :])


def wanted(context: Context, connections: t.LoggingLevel | None) -> frozenset[t.LoggingLevel]:
    """What a request's client wants to read; `connections` is what it has set for its connection."""
    return allowed_log_levels(context.protocol_version, context.meta) & at_least(
        (connections or UNSET) if context.session.can_send_request else "debug"
    )


def sender(context: Context, logger: str = LOGGER) -> Send:
    """Sends messages with a request's answer."""

    async def send(level: t.LoggingLevel, data: dict[str, Any]) -> None:
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        await context.session.send_notification(
            t.LoggingMessageNotification(params=params), related_request_id=context.request_id
        )

    return send


class Rate:
    """At most 50 messages at once and 10 a second after that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._room, self._seen_at = float(BURST), clock()
        self._left_out = 0

    def admits(self) -> bool:
        """Whether there is room for one more, which is counted as left out else."""
        now = self._clock()
        self._room = min(float(BURST), self._room + (now - self._seen_at) * PER_S)
        self._seen_at = now
        if self._room < 1:
            self._left_out += 1
            return False
        self._room -= 1
        return True

    def left_out(self) -> dict[str, int]:
        """What a message says of those that were left out before it; they are told once."""
        left_out, self._left_out = self._left_out, 0
        return {"left_out": left_out} if left_out else {}


class RunLog:
    """The log of one call. `told`: the number up to which an earlier call has told of the same run."""

    def __init__(
        self,
        send: Send,
        levels: Collection[t.LoggingLevel],
        *,
        told: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._levels, self._told = send, levels, told
        self._rate = Rate(clock)
        self._has_begun = False

    async def begin(self, run_id: str, session_id: str, model: str) -> None:
        """A run is followed from now on, in the first of its legs if not before."""
        if not self._told and not self._has_begun:
            self._has_begun = True
            await self._tell("info", "run_started", run_id=run_id, session_id=session_id, model=model)

    async def see(self, event: Event) -> None:
        """Tell of an event, where it is worth a message. A call's arguments and result are not in it."""
        if event.number <= self._told:
            return
        match event:
            case ToolCalling(call=call):
                await self._tell("info", "tool_calling", round=event.round, call_id=call.id, name=call.name)
            case ToolReturned(call=call, status=status):
                level: t.LoggingLevel = "info" if status == "completed" else "warning"
                facts = {"round": event.round, "call_id": call.id, "name": call.name, "status": status}
                await self._tell(level, "tool_returned", **facts)
            case ToolTold(level=told) if told is not None:
                facts = {"round": event.round, "call_id": event.call_id, "name": event.name, "text": event.text}
                await self._tell(LEVELS[LEVELS.index(told)], "tool_told", **facts)
            case ServerSampled(usage=usage):
                facts = {"round": event.round, "call_id": event.call_id, "server": event.server}
                await self._tell("info", "server_sampled", **facts, usage=usage.model_dump(mode="json"))
            case RoundEnded(usage=usage):
                await self._tell("debug", "round_ended", round=event.round, usage=usage.model_dump(mode="json"))
            case RunPaused(reason=reason, pause_id=pause_id):
                await self._tell("notice", "run_paused", reason=reason.value, pause_id=pause_id)
            case RunDone(status=status, error=error):
                failed = status is RunStatus.FAILED
                facts = {"status": status.value, "stop_reason": event.stop_reason}
                await self._tell(
                    "error" if failed else "info", "run_done", **facts, **({"error": error} if failed else {})
                )
            case _:
                pass

    async def _tell(self, level: t.LoggingLevel, what: str, **facts: Any) -> None:
        if level in self._levels and self._rate.admits():
            await self._send(level, {"event": what, **facts, **self._rate.left_out()})
