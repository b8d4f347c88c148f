"""The tools that a run can call: the server's own, and those of the servers that its requests have brought by URL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.runtime.loop.events import ToolStatus
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.tool_search import asked_in, deferred_of, find, names_found
from tenuto.sessions.items import Item, ToolSpec
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission, Verdict
from tenuto.tools.host.requested import Requested
from tenuto.tools.names import TOOL_SEARCH
from tenuto.tools.registry import Exported
from tenuto.tools.spec import CallContext, ToolResult, digest

REQUESTED = "requested"
"""What metrics call the servers that requests bring: their own names are whatever clients like."""

GONE = (
    "its MCP server came with a request, by its URL. What the request said of it is kept in memory only, and is gone:"
    " this server was restarted, or needed the room"
)


@dataclass(frozen=True, slots=True)
class RunTools:
    """The tools of one run, for its legs. Event-loop thread only."""

    services: Services
    run: Run
    brought: Requested | None = None
    """The servers that are to be the run's, in the place of those that it has."""
    session: Session | None = None
    """Where the run is under way: the run's session."""

    @property
    def deferred(self) -> Sequence[ToolSpec]:
        """The tools that are searched for."""
        servers, session = self.run.options.deferred, self.session
        if not servers or session is None:
            return ()
        return deferred_of(servers, self.run.options.tools, session.server_tools or ())

    def found(self, items: Iterable[Item]) -> tuple[ToolSpec, ...]:
        """Those of them that may be called, since searches have found them."""
        if not self.run.options.deferred or not (names := names_found(items)):
            return ()
        known = {tool.name: tool for tool in self.deferred}
        return tuple(known[name] for name in names if name in known)

    def decide(self, tool: str, session: Session) -> Verdict:
        """Whether a tool of a server may be called now."""
        if self._is_search(tool):
            return Verdict(Permission.AUTO, "it is this server's own, and reads")
        if (missing := self.missing(tool)) is not None:
            return Verdict(Permission.AUTO, missing)  # the call's result tells it; nobody needs to be asked
        options, policy = self.run.options, self.services.policy
        decide = policy.decide if self._found(tool) is None else policy.decide_requested
        remembered = bool(session.approved) and self.remembered_as(tool) in session.approved
        return decide(tool, request=options.permission_for(tool), can_answer=options.can_answer, remembered=remembered)

    def remembered_as(self, tool: str) -> str:
        """What stands in a session for the approval of a tool as it is now, and at the server where it is now."""
        found = self._found(tool)
        if found is None:
            return self.services.policy.remembered_as(tool)
        return f"{tool} {digest(found.tool)} {self._identity(tool)}"

    def repeatable(self, tool: str) -> bool:
        """Whether a call that may have been made may be made again."""
        if self._is_search(tool):
            return True
        found = self._found(tool)
        return self.services.policy.repeatable(tool) if found is None else found.tool.annotations.repeatable

    def missing(self, tool: str) -> str | None:
        """Why a tool cannot be called whose server came with a request and is not known any more."""
        return GONE if self._identity(tool) is not None and self._found(tool) is None else None

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext, timeout: float) -> ToolResult:
        """Call a tool. Raises what `Registry.call` does."""
        if self._is_search(tool):
            return await find(self.deferred, arguments, "" if self.session is None else asked_in(self.session.items))
        if (missing := self.missing(tool)) is not None:
            return ToolResult(f"Error: {tool} was not called: {missing}", is_error=True)
        brought = None if self._identity(tool) is None else self._brought
        called = self.services.registry if brought is None else brought
        return await called.call(tool, arguments, context, timeout)

    def count(self, tool: str, status: ToolStatus) -> None:
        """Count a call among the server's figures."""
        if self._is_search(tool):
            self.services.metrics.tool_call(TOOL_SEARCH, TOOL_SEARCH, status)
        elif self._identity(tool) is not None:
            self.services.metrics.tool_call(REQUESTED, REQUESTED, status)
        elif (found := self.services.registry.find(tool)) is not None:
            self.services.metrics.tool_call(found.server, tool, status)

    def _is_search(self, tool: str) -> bool:
        return tool == TOOL_SEARCH and bool(self.run.options.deferred)

    @property
    def _brought(self) -> Requested | None:
        return self.brought or self.services.requested.of(self.run.id)

    def _identity(self, tool: str) -> str | None:
        """What names the place of a tool's server, where that came with a request."""
        return next((identity for name, identity in self.run.options.requested if name == tool), None)

    def _found(self, tool: str) -> Exported | None:
        """The tool of a server that came with a request, while that is known, and is where it was."""
        brought, identity = self._brought, self._identity(tool)
        if brought is None or identity is None:
            return None
        found = brought.registry.known(tool)
        return found if found is not None and brought.identity_of(found) == identity else None
