"""What a front end asks of the loop: one turn of a conversation, free of any dialect."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.pipelines.template_variables import NO_VARIABLES, TemplateVariables
from tenuto.runtime.loop.prefill import Prefill
from tenuto.sessions.items import Item, JsonObject, ToolSpec, source_of
from tenuto.sessions.principal import Principal
from tenuto.sessions.priority import Priority
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission
from tenuto.tools.host.requested import Requested


class SessionMode(StrEnum):
    """How a request's items join a session's; AUTO follows the rule of its dialect."""

    AUTO = "auto"
    APPEND = "append"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take. None: the server's default."""

    max_tokens: int | None = None
    max_tool_rounds: int | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """Which tools the model sees and how it may use them.

    `given` is false where the request has no `tools` field: the server's default set then. `client` are the tools
    that the client runs; `servers` maps a server's label to the allowed names, None for all of them. `only` narrows a
    required choice to one name. `allowed` narrows what may be called, and leaves what the model sees. `asks` names
    tools of servers that need a person's word, whatever the server's own settings say.
    """

    given: bool = False
    client: tuple[ToolSpec, ...] = ()
    servers: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    choice: ToolChoice = ToolChoice.AUTO
    only: str | None = None
    allowed: tuple[str, ...] | None = None
    parallel: bool = True
    asks: tuple[str, ...] = ()
    requested: Requested | None = field(default=None, repr=False, compare=False)
    """The servers that the request brings by their URLs, which `servers` names too."""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """What the answer's text must be: one JSON object, or one JSON value that is valid by `schema`.

    A schema that cannot be compiled is refused where it is `strict`; else the answer is any JSON value.
    """

    kind: Literal["json_object", "json_schema"]
    schema: JsonObject | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of a request that is left out of account, which its answer tells; the reason is in words."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a request says of how the model reasons before it answers. None: as the model does by itself.

    `budget` are the most tokens of reasoning for the request; after so many the model goes on to its answer.
    """

    is_on: bool | None = None
    effort: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class KeepAs:
    """The answer can be asked for again by its leg's id, as long as its session is in the store.

    `request` is what the front end wants to know of the request then. `is_detached`: the run goes on without anybody
    who follows it.
    """

    request: JsonObject
    is_detached: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `session_id` None: the session is found by matching, or made.

    `user` narrows matching, and `hint` decides it where several sessions fit; `stored` false keeps all in memory, None
    does as the session does; `wants_events` is true where the client opted into named events, so that it can be asked
    for approvals. `continues`: it brings results alone, and all that the run was held to holds on. `body_digest` names
    the whole request, for Idempotency-Key.

    `is_appended`: the session is there, and the items come at its end. `after` names the leg of a kept answer: what was
    said up to its end comes before the items. `is_instructed`: the first item instructs for this answer alone.
    """

    principal: Principal
    model: str | None
    items: tuple[Item, ...]
    session_id: str | None = None
    mode: SessionMode = SessionMode.AUTO
    tools: ToolSelection = field(default_factory=ToolSelection)
    sampling: AskedSampling = field(default_factory=AskedSampling)
    reasoning: Reasoning = field(default_factory=Reasoning)
    variables: TemplateVariables = NO_VARIABLES
    """Of the model's chat template, as the request names them."""
    prefill: Prefill | None = None
    """The beginning of the answer, which its client has written."""
    stop: tuple[str, ...] = ()
    response: ResponseFormat | None = None
    limits: Limits = field(default_factory=Limits)
    permission: Permission | None = None
    priority: Priority | None = None
    """None: interactive where somebody waits for the answer, else in the background."""
    roots: tuple[str, ...] = ()
    """The folders that the session works in, by their URIs."""
    user: str | None = None
    hint: str | None = None
    stored: bool | None = None
    match: bool = True
    wants_events: bool = False
    continues: bool = False
    left_out: tuple[LeftOut, ...] = ()
    keep_as: KeepAs | None = None
    is_appended: bool = False
    after: str | None = None
    is_instructed: bool = False
    idempotency_key: str | None = None
    body_digest: str | None = None
    brought: dict[Hashable, tuple[Item, ...]] = field(default_factory=dict, repr=False, compare=False)
    """What its items name of MCP servers, as far as it has been read; see `attach`."""
    request_items: RequestItems = field(init=False, repr=False, compare=False)
    """The items as matching and splicing look at them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "request_items", RequestItems(self.items))

    @property
    def instructions(self) -> tuple[Item, ...]:
        """What instructs the model for this answer alone."""
        return self.items[: self.is_instructed]

    @property
    def names_offers(self) -> bool:
        """Whether it names something of an MCP server, which may take its time."""
        return any(source_of(item) is not None for item in self.items)

    @property
    def is_stored(self) -> bool:
        """Whether a session that is made for it is kept in the store."""
        return self.stored is not False

    @property
    def is_detached(self) -> bool:
        """Whether its run goes on without anybody who follows it."""
        return self.keep_as is not None and self.keep_as.is_detached

    def expect_kept_in(self, session: Session) -> None:
        """Raise InvalidRequest where the run is to go on by itself, and nobody could ask for what comes of it."""
        if self.is_detached and not session.stored:
            raise InvalidRequest(
                f"background: session {session.id!r} is kept in memory only; leave out background, or use another",
                "background",
            )

    def expect_stored_as(self, session: Session) -> None:
        """Raise InvalidRequest where the request says how the session is kept, and it is kept otherwise."""
        if self.stored is None or self.stored is session.stored:
            return
        kept, asked = ("stored", "false") if session.stored else ("kept in memory only", "true")
        raise InvalidRequest(
            f"store: session {session.id!r} is {kept}, so it cannot continue with store: {asked}; leave out store,"
            " or use another session_id",
            "store",
        )
