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
from tenuto.runtime.schema.events import Event, RoundEnded, RunDone, RunPaused, ToolCalling, ToolReturned
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


def sender(context: Context) -> Send:
    """Sends messages with a request's answer."""

    async def send(level: t.LoggingLevel, data: dict[str, Any]) -> None:
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=LOGGER)
        await context.session.send_notification(
            t.LoggingMessageNotification(params=params), related_request_id=context.request_id
        )

    return send


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
        self._send, self._levels, self._told, self._clock = send, levels, told, clock
        self._room, self._seen_at = float(BURST), clock()
        self._left_out = 0

    async def begin(self, run_id: str, session_id: str, model: str) -> None:
        """A run is followed from now on."""
        if not self._told:
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
        if level not in self._levels:
            return
        now = self._clock()
        self._room = min(float(BURST), self._room + (now - self._seen_at) * PER_S)
        self._seen_at = now
        if self._room < 1:
            self._left_out += 1
            return
        self._room -= 1
        left_out, self._left_out = self._left_out, 0
        await self._send(level, {"event": what, **facts, **({"left_out": left_out} if left_out else {})})
