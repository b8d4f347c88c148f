"""The tools that a run can call: the server's own, and those of the servers that its requests have brought by URL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.events import ToolStatus
from tenuto.runtime.loop.linked import READ, Asked, Links, is_told
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.tool_search import asked_in, deferred_of, find, names_found
from tenuto.sessions.items import Item, ToolCall, ToolSpec
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission, Verdict
from tenuto.tools.host.requested import Requested
from tenuto.tools.names import READ_RESOURCE, TOOL_SEARCH
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

    def found(self, items: Sequence[Item]) -> tuple[ToolSpec, ...]:
        """What may be called besides the tools that the model was shown: what searches have found, and the reading of
        resources once there are links."""
        found: tuple[ToolSpec, ...] = (READ,) if self._can_read and is_told(items) else ()
        if not self.run.options.deferred or not (names := names_found(items)):
            return found
        known = {tool.name: tool for tool in self.deferred}
        return (*(known[name] for name in names if name in known), *found)

    def decide(self, call: ToolCall, session: Session, items: Sequence[Item]) -> Verdict:
        """Whether a call of a server's tool may be made now. `items` are the session's with those yet to be kept."""
        tool = call.name
        if self._is_reading(tool):
            return self._decide_reading(call, session, items)
        if self._is_search(tool):
            return Verdict(Permission.AUTO, "it is this server's own, and reads")
        if (missing := self.missing(tool)) is not None:
            return Verdict(Permission.AUTO, missing)  # the call's result tells it; nobody needs to be asked
        options, policy = self.run.options, self.services.policy
        decide = policy.decide if self._found(tool) is None else policy.decide_requested
        remembered = bool(session.approved) and self.remembered_as(tool) in session.approved
        return decide(tool, request=options.permission_for(tool), can_answer=options.can_answer, remembered=remembered)

    def _decide_reading(self, call: ToolCall, session: Session, items: Sequence[Item]) -> Verdict:
        asked = self._asked(call.arguments, items)
        if asked.server is None:  # nobody is asked, and nothing is read that may be linked or listed in a moment
            return Verdict(Permission.DENY, f"Error: {asked.error}")
        options = self.run.options
        return self.services.policy.decide_reading(
            asked.server,
            request=options.permission_for(call.name),
            can_answer=options.can_answer,
            remembered=_reading_at(asked.server) in session.approved,
        )

    def remembered_as(self, tool: str, arguments: str = "{}") -> str:
        """What stands in a session for the approval of a tool as it is now, and at the server where it is now.

        A reading is approved for all resources of its server.
        """
        if self._is_reading(tool) and self.session is not None:
            return _reading_at(self._asked(arguments, self.session.items).server)
        found = self._found(tool)
        if found is None:
            return self.services.policy.remembered_as(tool)
        return f"{tool} {digest(found.tool)} {self._identity(tool)}"

    def repeatable(self, tool: str) -> bool:
        """Whether a call that may have been made may be made again."""
        if self._is_search(tool) or self._is_reading(tool):
            return True
        found = self._found(tool)
        return self.services.policy.repeatable(tool) if found is None else found.tool.annotations.repeatable

    def missing(self, tool: str) -> str | None:
        """Why a tool cannot be called whose server came with a request and is not known any more."""
        return GONE if self._identity(tool) is not None and self._found(tool) is None else None

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext, timeout: float) -> ToolResult:
        """Call a tool. Raises what `Registry.call` does."""
        items = () if self.session is None else self.session.items
        if self._is_search(tool):
            return await find(self.deferred, arguments, asked_in(items))
        if self._is_reading(tool):
            principal = self.run.record.principal
            return await self._links.read(principal, self._links.asked(principal, arguments, items))
        if (missing := self.missing(tool)) is not None:
            return ToolResult(f"Error: {tool} was not called: {missing}", is_error=True)
        brought = None if self._identity(tool) is None else self._brought
        called = self.services.registry if brought is None else brought
        result = await called.call(tool, arguments, context, timeout)
        return self._links.telling(tool, result, items) if brought is None and self._can_read else result

    def count(self, tool: str, status: ToolStatus) -> None:
        """Count a call among the server's figures."""
        if (counted := self.counted_as(tool)) is not None:
            self.services.metrics.tool_call(*counted, status)

    def counted_as(self, tool: str) -> tuple[str, str] | None:
        """The server and the tool by which figures know a tool, names of clients' own left out; None: it is unknown."""
        if self._is_search(tool) or self._is_reading(tool):
            return tool, tool
        if self._identity(tool) is not None:
            return REQUESTED, REQUESTED
        found = self.services.registry.find(tool)
        return None if found is None else (found.server, tool)

    def _is_search(self, tool: str) -> bool:
        return tool == TOOL_SEARCH and bool(self.run.options.deferred)

    def _is_reading(self, tool: str) -> bool:
        return tool == READ_RESOURCE and self._can_read

    @property
    def _can_read(self) -> bool:
        """Whether the model may be told of the tool that reads links: it is free in what it calls."""
        options = self.run.options
        taken = any(tool.name == READ_RESOURCE for tool in options.tools)
        return options.allowed is None and options.choice is not ToolChoice.NONE and not taken

    @property
    def _links(self) -> Links:
        return Links(self.services.offering, self.services.registry)

    def _asked(self, arguments: str, items: Sequence[Item]) -> Asked:
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = None
        return self._links.asked(self.run.record.principal, given, items)

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


def _reading_at(server: str | None) -> str:
    return f"{READ_RESOURCE} {server}"
