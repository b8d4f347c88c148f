"""What a run is held to, in a form that is stored with it, so that it can go on after a restart."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from tenuto.pipelines.base import Sampling, ToolChoice
from tenuto.sessions.items import JsonObject, ToolSpec
from tenuto.tools.approvals import Permission


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A run's settings, all defaults resolved.

    `tools` are all that the model sees, in order; `client_tools` names those that the client runs. Where `choice`
    requires a call, that holds for the round of number `choice_round` alone, the first that the request asks for.
    `allowed` are those that may be called, None for all. `answer` is the schema of an answer that must be JSON.
    """

    sampling: Sampling
    stop: tuple[str, ...]
    max_tokens: int
    max_tool_rounds: int
    deadline_s: float
    permission: Permission | None
    can_answer: bool
    tools: tuple[ToolSpec, ...]
    client_tools: frozenset[str]
    choice: ToolChoice
    only: str | None
    parallel: bool
    allowed: tuple[str, ...] | None = None
    answer: JsonObject | None = None
    choice_round: int = 1
    miss_reason: str | None = None
    """Why tokens that the session had were not kept: what the splice said."""
    spent_before: int = 0
    """Tokens sampled before the present request; `max_tokens` bounds what comes after them."""

    def callable(self, choice: ToolChoice) -> tuple[ToolSpec, ...]:
        """The tools that may be called where that is the choice."""
        if choice is ToolChoice.REQUIRED and self.only is not None:
            return tuple(tool for tool in self.tools if tool.name == self.only)
        return tuple(tool for tool in self.tools if self.allowed is None or tool.name in self.allowed)

    def dump(self) -> dict[str, Any]:
        """JSON values."""
        dumped: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return dumped

    @staticmethod
    def load(value: dict[str, Any]) -> "RunOptions":
        """Read what `dump` gave."""
        return _ADAPTER.validate_python(value)


_ADAPTER: TypeAdapter[RunOptions] = TypeAdapter(RunOptions)
