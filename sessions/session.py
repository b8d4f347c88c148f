"""A session while it is in memory: its items, its ledgers, its notes, and who it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenuto.sessions.ids import new_hex
from tenuto.sessions.items import Item, ToolSpec
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.visible import VisibleHistory

Key = tuple[str, str]
"""A principal and the id of one of its sessions."""


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a fork comes from: the session's uid, and how many of its items were taken."""

    uid: str
    at: int


def new_uid(now: float) -> str:
    """An id that nobody has. It begins with the time, so that what is of one time lies together in the store."""
    return f"{int(now * 1000):011x}{new_hex(13)}"


@dataclass(slots=True, weakref_slot=True)
class Session:
    """A conversation. Event-loop thread only; changed by the one run that is open on it.

    `uid` is unique over all principals and never reused; `id` is what the client knows, unique for its principal.
    `implicit`: made without the client naming it. `stored`: false keeps it in memory only. `server_tools` is the
    server's tool list as frozen at the first turn, None before that; `server_instructions` are what servers said of
    their tools then, by their names. `approved` holds the tools that a person has approved for the rest of the session.
    `hint` is what its client last said of which conversation it is. `instructed`:
    the first item instructs for the last answer alone, and is no part of the conversation. `metadata` is its client's.
    """

    uid: str
    principal: str
    id: str
    created_at: float
    updated_at: float
    implicit: bool = False
    stored: bool = True
    user: str | None = None
    hint: str | None = None
    expires_at: float | None = None
    parent: Parent | None = None
    items: list[Item] = field(default_factory=list)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    server_tools: tuple[ToolSpec, ...] | None = None
    server_instructions: Mapping[str, str] = field(default_factory=dict)
    approved: frozenset[str] = frozenset()
    open_run: str | None = None
    instructed: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[int, ...] = ()
    """The numbers of the items that were taken away, in order; see `parts`."""
    notes: dict[str, str] = field(default_factory=dict)
    """By their keys, in the order in which these were first written."""
    is_committed: bool = field(default=False, repr=False, compare=False)
    """Whether it has been committed; before that nobody finds it, however long its maker holds it."""
    listed: bool = field(default=False, repr=False, compare=False)
    """Whether the list of its principal's sessions has it: it is in the store, and somebody has named it."""
    history: VisibleHistory = field(default_factory=VisibleHistory, repr=False, compare=False)
    """What a client saw of its items, with digests; it follows them when it is asked."""

    @property
    def key(self) -> Key:
        """What finds it: its principal and its id."""
        return self.principal, self.id
