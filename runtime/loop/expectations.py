"""For how long runs that wait are expected to: as long as their tools have taken, and people and clients did so far."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from tenuto.runtime.engine.estimates import Estimate
from tenuto.sessions.records import PauseReason

MOST_TOOLS = 1024
MOST_PAUSES = 4096
_TOOL_S = 1.0
_PAUSES_S = {PauseReason.APPROVAL: 60.0, PauseReason.INPUT: 60.0, PauseReason.CLIENT_TOOL: 10.0}
"""How long each is taken to be before any was measured."""

Tool = tuple[str, str]
"""Its server's name and its own."""


@dataclass(frozen=True, slots=True)
class Expected:
    """In how many seconds, by `spread_s` more or less."""

    seconds: float
    spread_s: float


class Expectations:
    """The running estimates of one server. Event-loop thread only; it reads no clock.

    Both tables are bounded: the tools and the pauses that were seen least recently are forgotten. Tools are those that
    the server itself lists, so nobody fills the table with names of their own.
    """

    def __init__(self) -> None:
        self._tools: OrderedDict[Tool, Estimate] = OrderedDict()
        self._any_tool = Estimate(_TOOL_S)
        self._pauses = {reason: Estimate(_PAUSES_S.get(reason, max(_PAUSES_S.values()))) for reason in PauseReason}
        self._paused: OrderedDict[str, tuple[PauseReason, float]] = OrderedDict()

    def called(self, tool: Tool, seconds: float) -> None:
        """A tool has answered after so long, and has asked nobody meanwhile."""
        estimate = self._tools.pop(tool, None) or Estimate(_TOOL_S)
        estimate.add(seconds)
        self._tools[tool] = estimate
        self._any_tool.add(seconds)
        if len(self._tools) > MOST_TOOLS:
            self._tools.popitem(last=False)

    def of_calls(self, tools: Iterable[Tool]) -> Expected:
        """How long a round waits that makes these calls at once: as long as the slowest. Of a tool that was not called
        yet, as long as any."""
        slowest = max(
            (self._tools.get(tool, self._any_tool) for tool in tools),
            key=lambda one: one.expected_s,
            default=self._any_tool,
        )
        return Expected(slowest.expected_s, slowest.spread_s)

    def paused(self, run: str, reason: PauseReason, now: float) -> Expected:
        """A run begins to wait for a person or its client; for how long, as far as others have told."""
        self._paused.pop(run, None)
        self._paused[run] = reason, now
        if len(self._paused) > MOST_PAUSES:
            self._paused.popitem(last=False)
        estimate = self._pauses[reason]
        return Expected(estimate.expected_s, estimate.spread_s)

    def resumed(self, run: str, now: float) -> None:
        """A run goes on, if it has waited."""
        if (waited := self._paused.pop(run, None)) is not None:
            reason, since = waited
            self._pauses[reason].add(max(now - since, 0.0))
