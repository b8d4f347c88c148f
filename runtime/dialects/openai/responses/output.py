"""A run's events as the items of a response, and as the events that tell of them. No I/O.

A response that is sent whole is gathered by the same steps as one that is streamed, so the two cannot differ.
"""

from typing import TypeVar

from tenuto.runtime.dialects.openai.responses import events as e
from tenuto.runtime.dialects.openai.responses.approvals import request_id
from tenuto.runtime.dialects.openai.responses.asked import Asked, ToolList
from tenuto.runtime.dialects.openai.responses.callables import ClientTool
from tenuto.runtime.dialects.openai.responses.frames import Events
from tenuto.runtime.dialects.openai.responses.output_items import (
    ClientCall,
    Growing,
    ServerCall,
    Spoken,
    Thought,
    Whole,
)
from tenuto.runtime.dialects.openai.responses.shapes import McpApprovalItem, McpListItem, OutputItem
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.loop.events import (
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
    ToolStatus,
    ToolTold,
)
from tenuto.sessions.items import ToolCall
from tenuto.sessions.records import PauseReason
from tenuto.tools.names import parted

GrowingT = TypeVar("GrowingT", bound=Growing)


class Output:
    """The output of one response to what was asked. `name` makes the ids of its items, `listed` are the server's tools.

    Where a round may need a person's word before the client may know of its calls, they are told when the run waits for
    them.
    """

    def __init__(self, events: Events, name: str, asked: Asked, listed: Listed) -> None:
        self._events, self._name = events, name
        self._callables = asked.callables
        self._servers = {one.name: one for tools in listed.values() for one in tools}
        self._renamed = asked.renamed
        self._holds_calls, self._approved = asked.holds_calls, asked.approved
        self._items: list[Growing] = []
        self._said: Spoken | Thought | None = None
        self._calls: list[ClientCall] = []
        self._held: list[RunEvent] = []
        self._made: dict[str, ServerCall] = {}

    def items(self) -> list[OutputItem]:
        """All items as they stand."""
        return [item.shape() for item in self._items]

    def list_tools(self, listed: ToolList) -> None:
        """Tell the tools of a server."""
        id, label = self._id("mcpl"), listed.label
        whole = McpListItem(id=id, type="mcp_list_tools", server_label=label, tools=[*listed.tools], error=None)
        item = self._add(Whole(self._events, id, len(self._items), whole.model_copy(update={"tools": []})))
        for state in ("in_progress", "completed"):
            name = f"response.mcp_list_tools.{state}"
            self._events.tell(e.McpEvent, name, item_id=id, output_index=item.index)
        item.item = whole
        item.end()

    def take(self, event: RunEvent) -> None:
        """Add what an event tells."""
        match event:
            case TextAdded():
                self._spoken(event.round).add(event.text, event.logprobs)
            case ReasoningAdded():
                self._thought(event.round).add(event.text)
            case ClientCallStarted() | ClientCallArguments() if self._holds_calls:
                self._held.append(event)
            case ClientCallStarted() | ClientCallArguments():
                self._take_call(event)
            case ToolCalling():
                self._begin_server_call(event.call)
            case ToolReturned():
                call = self._made.pop(event.call.id, None) or self._begin_server_call(event.call)
                self._made.pop(event.call.id, None)
                call.close(event.status, event.result)
            case RunPaused(reason=PauseReason.CLIENT_TOOL):
                for held in self._held:
                    self._take_call(held)
                self._end_said()
                for waiting in self._calls:
                    waiting.close("completed")
            case RunPaused(reason=PauseReason.APPROVAL):
                self._ask(event)
            case RunPaused() | RunDone() | ToolTold() | ServerSampled() | RoundEnded():
                pass

    def end(self, *, cut: bool) -> None:
        """Nothing more comes. `cut`: it ended in the middle."""
        self._end_said(cut=cut)
        for item in self._items:
            if item.is_whole:
                continue
            if isinstance(item, ClientCall):
                item.close("incomplete")
            elif isinstance(item, ServerCall):
                item.close(ToolStatus.FAILED, None)

    # Texts.

    def _spoken(self, round: int) -> Spoken:
        if not (isinstance(self._said, Spoken) and self._said.round == round):
            self._end_said()
            self._said = self._add(Spoken(self._events, self._id("msg"), len(self._items), round))
        return self._said

    def _thought(self, round: int) -> Thought:
        if not (isinstance(self._said, Thought) and self._said.round == round):
            self._end_said()
            self._said = self._add(Thought(self._events, self._id("rs"), len(self._items), round))
        return self._said

    def _end_said(self, *, cut: bool = False) -> None:
        if self._said is not None:
            self._said.close("incomplete" if cut else "completed")
            self._said = None

    # Calls.

    def _take_call(self, event: RunEvent) -> None:
        if isinstance(event, ClientCallStarted):
            self._end_said()
            tool = self._callables.get(event.name) or ClientTool(event.name)
            id = self._id("ctc" if tool.is_custom else "fc")
            self._calls.append(self._add(ClientCall(self._events, id, len(self._items), event.call_id, tool)))
        elif isinstance(event, ClientCallArguments):
            self._calls[event.index].add(event.text)

    def _begin_server_call(self, call: ToolCall) -> ServerCall:
        self._end_said()
        label, name = self._server_name(call.name)
        begun = ServerCall(self._events, self._id("mcp"), len(self._items), call, label, name, self._approved)
        self._approved = None  # the call that was asked about is the first that is made
        self._made[call.id] = self._add(begun)
        return begun

    def _ask(self, pause: RunPaused) -> None:
        """The client's calls of this round are told when nobody needs to be asked any more."""
        self._held.clear()
        self._end_said()
        call = pause.calls[0]
        label, name = self._server_name(call.name)
        asked = McpApprovalItem(
            id=request_id(pause.pause_id or ""),
            type="mcp_approval_request",
            server_label=label,
            name=name,
            arguments=call.arguments,
        )
        self._add(Whole(self._events, asked.id, len(self._items), asked)).end()

    def _server_name(self, exported: str) -> tuple[str, str]:
        """The server and its own name for a tool."""
        if exported in self._renamed:
            return self._renamed[exported]
        found = self._servers.get(exported)
        return parted(exported) if found is None else (found.server, found.tool.spec.name)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._name}{len(self._items):04x}"

    def _add(self, item: GrowingT) -> GrowingT:
        self._items.append(item)
        item.begin()
        return item
