"""From a turn to what its run is held to: defaults resolved, tools chosen, and what is left out of account told."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop import variables
from tenuto.runtime.loop.constraints import check_bias, constrained
from tenuto.runtime.loop.instructions import told
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.options import RunOptions
from tenuto.runtime.loop.requests import LeftOut, Turn
from tenuto.runtime.loop.tool_room import ToolRoom
from tenuto.runtime.loop.tool_search import server_of
from tenuto.runtime.loop.toolset import can_search, default_tools, select, whole_servers
from tenuto.sessions.blobs import TOOLS
from tenuto.sessions.items import Item, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.session import Session
from tenuto.tools.host.requested import Requested
from tenuto.tools.registry import Registry

_MOST_NAMED = 20
_SMALL_SET = 16
"""Of so many tools nobody needs to search."""
_SEARCHED = 2
"""Rounds of calls: one that searches, and one that calls what it has found."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request says nothing, and what holds for all."""

    max_tokens: int = 4096
    max_tool_rounds: int = 16
    deadline_s: float = 600.0
    default_tools: Literal["all", "none"] | tuple[str, ...] = "all"
    tool_share: float = 0.25
    """Servers' tools that take more of a model's context are searched for, and not shown."""
    max_runs: int = 1024


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Resolves what turns leave open. Event-loop thread only."""

    registry: Registry
    defaults: Defaults
    _room: ToolRoom = field(default_factory=ToolRoom)

    async def of(self, turn: Turn, model: Model, session: Session, miss_reason: str | None = None) -> RunOptions:
        """What a run of the turn is held to. Raises InvalidRequest."""
        defaults, limits, offered = self.defaults, turn.limits, self.server_tools(session)
        default = default_tools(offered, defaults.default_tools)
        left_out = [*turn.left_out, *variables.left_out(turn, model.codec.info), *_unseen(turn.items, model)]
        chosen = variables.variables_of(turn, model.codec.info)
        await variables.with_variables(model.codec, chosen)  # so that it is at hand from now on
        deferred = await self._deferred(turn, model, offered)
        if not turn.tools.given and not deferred:
            fitting = await self._room.fitting(model.codec, default, model.context)
            left_out += _crowded(default, fitting)
            default = fitting
        toolset = select(turn.tools, offered, default, deferred)
        sampling = turn.sampling.over(model.defaults)
        check_bias(model.codec, sampling)
        return RunOptions(
            sampling=sampling,
            stop=turn.stop,
            max_tokens=limits.max_tokens or min(defaults.max_tokens, model.context),
            max_tool_rounds=_given(limits.max_tool_rounds, defaults.max_tool_rounds),
            deadline_s=limits.deadline_s or defaults.deadline_s,
            permission=turn.permission,
            can_answer=turn.wants_events,
            tools=toolset.tools,
            client_tools=toolset.client,
            choice=turn.tools.choice,
            only=turn.tools.only,
            allowed=turn.tools.allowed,
            asks=turn.tools.asks,
            deferred=deferred,
            requested=_requested(turn.tools.requested, toolset.tools),
            parallel=turn.tools.parallel,
            variables=chosen,
            thinking_budget=turn.reasoning.budget,
            prefill=turn.prefill,
            priority=turn.priority,
            roots=turn.roots,
            instructions=told(
                self.server_instructions(session),
                {*deferred, *(server_of(each.name) for each in toolset.tools if each.name not in toolset.client)},
                model.context,
            ),
            miss_reason=miss_reason,
            left_out=tuple(left_out),
        )

    async def _deferred(self, turn: Turn, model: Model, offered: Sequence[ToolSpec]) -> tuple[str, ...]:
        """The servers whose tools the model is to search for: of those that are the turn's with all their tools."""
        rounds = _given(turn.limits.max_tool_rounds, self.defaults.max_tool_rounds)
        if self.defaults.tool_share >= 1 or rounds < _SEARCHED or not can_search(turn.tools):
            return ()
        whole = whole_servers(turn.tools, offered, self.defaults.default_tools)
        if len(whole) <= _SMALL_SET or "tools" not in model.capabilities:
            return ()
        return await self._room.crowding(model.codec, whole, int(model.context * self.defaults.tool_share))

    def server_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """The server's tools as they were at the session's first turn."""
        if session.server_tools is not None:
            return session.server_tools
        return TOOLS.of(tuple(exported.spec for exported in self.registry.list())).value

    def server_instructions(self, session: Session) -> Mapping[str, str]:
        """What the servers said of their tools then."""
        return self.registry.instructions() if session.server_tools is None else session.server_instructions


def _requested(requested: Requested | None, tools: Sequence[ToolSpec]) -> tuple[tuple[str, str], ...]:
    """Which of a run's tools are of servers that its request brings, and what names where those are."""
    if requested is None:
        return ()
    names = {tool.name for tool in tools}
    return tuple((tool.name, requested.identity_of(tool)) for tool in requested.tools if tool.name in names)


async def held(model: Model, options: RunOptions, turn: Turn) -> RunOptions:
    """The options of a new run with what its answer is held to; without tools that nobody has asked for, where the
    model cannot have both.

    Raises:
        InvalidRequest: the model cannot be held to the calls or the answer that are asked for.
    """
    codec = options.codec_of(model.codec)
    try:
        return await constrained(codec, options, turn.response)
    except InvalidRequest as error:
        reason = "the model cannot be held to a response format beside the server's {} default tools"
        bare = without_default_tools(options, turn, reason) if error.param == "response_format" else None
        if bare is None:
            raise
    return await constrained(codec, bare, turn.response)


def without_default_tools(options: RunOptions, turn: Turn, reason: str) -> RunOptions | None:
    """The options of a turn that cannot have tools that it has not asked for; None where it has asked for them.
    `reason` has a place for their number."""
    asked_for = turn.tools.given or turn.tools.allowed is not None or turn.tools.choice is ToolChoice.REQUIRED
    if asked_for or not options.tools:
        return None
    return replace(
        options,
        tools=(),
        deferred=(),
        instructions="",
        unenforced=tuple(each for each in options.unenforced if each.what != "tools"),
        left_out=(*options.left_out, LeftOut("tools", reason.format(len(options.tools)))),
    )


def _crowded(default: Sequence[ToolSpec], fitting: Sequence[ToolSpec]) -> list[LeftOut]:
    """What to tell of default tools that do not fit."""
    names = [tool.name for tool in default[len(fitting) :]]
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    which = f"{', '.join(names[:_MOST_NAMED])}{more}"
    return [LeftOut("tools", f"the server's {len(default)} default tools take more than half of the context: {which}")]


def _unseen(items: Iterable[Item], model: Model) -> list[LeftOut]:
    """What to tell of images and their like that the model cannot read."""
    reads = model.codec.info.modalities
    carrying = (item for item in items if isinstance(item, UserItem | ToolResultItem))
    unseen = Counter(one.kind for item in carrying for one in item.attachments if one.kind not in reads)
    read = ", ".join(sorted(reads, key=lambda kind: (kind != "text", kind)))
    return [
        LeftOut(kind, f"the model reads {read}; a note stands in place of {count} in the conversation")
        for kind, count in unseen.items()
    ]


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
