"""What a run is held to, in a form that is stored with it, so that it can go on after a restart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Codec, ToolChoice
from tenuto.pipelines.instructed import InstructedCodec
from tenuto.pipelines.template_variables import NO_VARIABLES, TemplateVariables
from tenuto.runtime.loop.prefill import Prefill
from tenuto.runtime.loop.requests import LeftOut, Reasoning, Turn
from tenuto.sessions.blobs import BLOCKS, SCHEMAS, Shared, ToolBlock
from tenuto.sessions.items import JsonObject, ToolSpec
from tenuto.sessions.priority import Priority
from tenuto.tools.approvals import Permission, strictest


@dataclass(frozen=True, slots=True)
class Unenforced:
    """Something that the request asks for and the model cannot be held to; the reason is in words."""

    what: Literal["tools", "response_format"]
    reason: str


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A run's settings, all defaults resolved.

    `tools` are all that the model sees, in order; `client_tools` names those that the client runs. Where `choice`
    requires a call, that holds for the first round alone of those that a request asks for. `max_tokens` bounds what is
    sampled for one request. `allowed` are those that may be called, None for all. `answer` is the schema of an answer
    that must be JSON.
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
    asks: tuple[str, ...] = ()
    """The tools that need a person's word because the request says so."""
    deferred: tuple[str, ...] = ()
    """The servers whose tools are searched for, but for those among `tools`."""
    requested: tuple[tuple[str, str], ...] = ()
    """The tools of servers that the request has brought by their URLs, and for each what names where that is."""
    answer: JsonObject | None = None
    unenforced: tuple[Unenforced, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    variables: TemplateVariables = NO_VARIABLES
    """What the model's chat template is rendered with besides."""
    thinking_budget: int | None = None
    """The most tokens of reasoning for one request, all its rounds together."""
    prefill: Prefill | None = None
    priority: Priority | None = None
    """What the request says of it."""
    roots: tuple[str, ...] = ()
    """The folders that servers of tools are told to work in, by their URIs."""
    instructions: str = ""
    """What the servers of these tools say of their use, as the model reads it before all else."""
    miss_reason: str | None = None
    """Why tokens that the session had were not kept: what the splice said."""

    def callable(self, choice: ToolChoice, found: Sequence[ToolSpec] = ()) -> tuple[ToolSpec, ...]:
        """The tools that may be called where that is the choice, among them what searches have `found`."""
        if choice is ToolChoice.REQUIRED and self.only is not None:
            return tuple(tool for tool in self.tools if tool.name == self.only)
        return tuple(tool for tool in (*self.tools, *found) if self.allowed is None or tool.name in self.allowed)

    def prefill_of(self, round: int) -> Prefill | None:
        """What the client has written of the round of that number."""
        return self.prefill if self.prefill is not None and self.prefill.round == round else None

    def prefilled_in(self, round: int) -> "RunOptions":
        """The same, of which what the client has written is the beginning of that round."""
        return self if self.prefill is None else replace(self, prefill=replace(self.prefill, round=round))

    def codec_of(self, codec: Codec) -> Codec:
        """A model's codec as it renders and reads what this run says."""
        varied = codec.with_variables(self.variables)
        return InstructedCodec(varied, self.instructions) if self.instructions else varied

    def permission_for(self, tool: str) -> Permission | None:
        """What the request says of a server's tool."""
        said = [each for each in (self.permission, Permission.ASK if tool in self.asks else None) if each is not None]
        return strictest(said) if said else None

    def shared(self) -> "RunOptions":
        """The same, of what repeats from run to run with the one object that stands for it."""
        block = BLOCKS.of(self._block).value
        answer = None if self.answer is None else SCHEMAS.of(self.answer).value
        if block.tools is self.tools and block.client is self.client_tools and answer is self.answer:
            return self
        return replace(
            self, tools=block.tools, client_tools=block.client, instructions=block.instructions, answer=answer
        )

    def dump(self) -> dict[str, Any]:
        """JSON values, without those that are as they mostly are; what repeats from run to run is `Shared`."""
        dumped: dict[str, Any] = _ADAPTER.dump_python(self, mode="json", exclude=_SHARED, exclude_defaults=True)
        dumped["tools"] = BLOCKS.of(self._block)
        if self.answer is not None:
            dumped["answer_schema"] = SCHEMAS.of(self.answer)
        return dumped

    @property
    def _block(self) -> ToolBlock:
        return ToolBlock(self.tools, self.client_tools, self.instructions)

    @staticmethod
    def load(value: dict[str, Any]) -> "RunOptions":
        """Read what `dump` gave. Raises ValueError where another version gave it in another form."""
        values = dict(value)
        block, schema = values.pop("tools", None), values.pop("answer_schema", None)
        if not (isinstance(block, Shared) and (schema is None or isinstance(schema, Shared))):
            raise ValueError("the options have no tool block")
        options = _ADAPTER.validate_python({**values, "tools": (), "client_tools": ()})
        answer = None if schema is None else schema.value
        shown = block.value
        return replace(
            options, tools=shown.tools, client_tools=shown.client, instructions=shown.instructions, answer=answer
        )


def inherited(fresh: RunOptions, before: RunOptions, turn: Turn) -> RunOptions:
    """What a run is held to that goes on with its client's results: what the request says, else what held before.

    One that `continues` says nothing by itself but whether its client can be asked. A permission is never loosened.
    """
    if turn.continues:
        return replace(before, can_answer=turn.wants_events, miss_reason=None, left_out=fresh.left_out, prefill=None)
    limits = turn.limits
    if not turn.tools.given:
        fresh = replace(
            fresh,
            tools=before.tools,
            client_tools=before.client_tools,
            asks=before.asks,
            deferred=before.deferred,
            requested=before.requested,
            instructions=before.instructions,
        )
    if not turn.roots:
        fresh = replace(fresh, roots=before.roots)
        if turn.tools.allowed is None:
            fresh = replace(fresh, allowed=before.allowed)
    if turn.reasoning == Reasoning() and not turn.variables:
        fresh = replace(fresh, variables=before.variables, thinking_budget=before.thinking_budget)
    return replace(
        fresh,
        answer=before.answer if turn.response is None else fresh.answer,
        priority=fresh.priority or before.priority,
        max_tokens=fresh.max_tokens if limits.max_tokens else before.max_tokens,
        max_tool_rounds=before.max_tool_rounds if limits.max_tool_rounds is None else fresh.max_tool_rounds,
        deadline_s=fresh.deadline_s if limits.deadline_s else before.deadline_s,
        permission=strictest(each for each in (fresh.permission, before.permission) if each is not None)
        if fresh.permission or before.permission
        else None,
    )


_SHARED = {"tools", "client_tools", "instructions", "answer"}
_ADAPTER: TypeAdapter[RunOptions] = TypeAdapter(RunOptions)
