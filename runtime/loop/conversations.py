"""What is done with a session's items beside its runs: begun with some, read, added to, and rid of some."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio.to_thread

from tenuto.errors import InvalidRequest, NotFound
from tenuto.runtime.loop import attach
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.pending import stand_ins
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.sessions import Sessions
from tenuto.runtime.loop.waiting import expect_at_rest
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import Item, item_bytes
from tenuto.sessions.parts import NamedPart, Part, find, named_parts, place_named, without
from tenuto.sessions.session import Session, new_uid
from tenuto.sessions.splice import added
from tenuto.sessions.transfer import MOST_ITEMS

MOST_BYTES = 64 << 20
"""Of a session's items, where more are added without a model that would have to read them."""

LARGE_BYTES = 1 << 18
"""Of items that are named in a thread."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartPage:
    """Some of a session's parts, in the order that was asked for."""

    parts: Sequence[NamedPart]
    has_more: bool


class Conversations:
    """Event-loop thread only. Each is a command to the session's owner; what changes items needs the session at rest.

    Items that are added have no tokens before a model reads them, at the session's next turn.
    """

    def __init__(self, services: Services, runs: Runs, owners: Owners, sessions: Sessions) -> None:
        self._services, self._directory = services, services.directory
        self._runs, self._owners, self._sessions = runs, owners, sessions

    async def begin(self, principal: str, id: str, items: Sequence[Item], metadata: Mapping[str, str]) -> Session:
        """A session that a client names, with these items. Raises InvalidRequest, Conflict (there is one)."""
        items = await self._named(principal, items)
        return await self._owners.ask((principal, id), partial(self._begin, principal, id, items, metadata))

    async def _begin(self, principal: str, id: str, items: Sequence[Item], metadata: Mapping[str, str]) -> Session:
        now, new = self._services.clock(), added((), items)
        _expect_room(new)
        session = Session(new_uid(now), principal, id, now, now, items=[*new], metadata=metadata)
        await self._directory.add(session)
        return session

    async def get(self, principal: str, id: str) -> Session:
        """A session; only what does not change of it may be read. Raises NotFound."""
        return await self._owners.ask((principal, id), partial(self._sessions.expect, principal, id))

    async def describe(self, principal: str, id: str, metadata: Mapping[str, str]) -> Session:
        """Let a session have this metadata, also while a run is at work in it. Raises NotFound."""
        return await self._owners.ask((principal, id), partial(self._describe, principal, id, metadata))

    async def _describe(self, principal: str, id: str, metadata: Mapping[str, str]) -> Session:
        session = await self._sessions.expect(principal, id)
        await self._directory.describe(session, metadata)
        return session

    async def add(self, principal: str, id: str, items: Sequence[Item]) -> Sequence[NamedPart]:
        """Add items at the end; the parts that they are.

        Raises:
            NotFound, SessionBusy, SessionPaused.
            InvalidRequest: a result belongs to no call, there are too many items, or they name what cannot be read.
            ServerUnreachable, ToolFailed: an MCP server of which they name something did not answer.
        """
        items = await self._named(principal, items)
        return await self._owners.ask((principal, id), partial(self._add, principal, id, items))

    async def _add(self, principal: str, id: str, items: Sequence[Item]) -> Sequence[NamedPart]:
        session = await self._at_rest(principal, id)
        draft = Draft(session)
        draft.add(stand_ins(session.items, items, "the client went on"))
        new = added(draft.items, items)
        draft.add(new)
        _expect_room(draft.items)
        draft.mark_turns(draft.kept)
        _save(draft)
        await self._directory.commit(draft)
        places = range(len(session.items) - len(new), len(session.items))
        return await _apart(new, lambda: [part for place in places for part in named_parts(session, place)])

    async def _named(self, principal: str, items: Sequence[Item]) -> Sequence[Item]:
        """The items, with what they name of MCP servers in its place."""
        brought: attach.Brought = {}
        await attach.read(self._services.offering, principal, attach.named(items), brought)
        return attach.placed(items, brought)

    async def page(self, principal: str, id: str, after: str | None, limit: int, *, newest_first: bool) -> PartPage:
        """Parts of a session, those that come after one of this name. Raises NotFound, InvalidRequest (`after`)."""
        work = partial(self._page, principal, id, after, limit, -1 if newest_first else 1)
        return await self._owners.ask((principal, id), work)

    async def _page(self, principal: str, id: str, after: str | None, limit: int, step: int) -> PartPage:
        session = await self._sessions.expect(principal, id)
        place = 0 if step > 0 else len(session.items) - 1
        if after is not None:
            found = await self._found(session, after)
            if found is None:
                raise InvalidRequest("after: there is no such item", "after")
            place = found[0]
        first = place if step > 0 else max(place - limit, 0)
        near = session.items[first : first + limit + 1]
        return await _apart(near, lambda: _paged(session, place, after, limit, step))

    async def part(self, principal: str, id: str, name: str) -> NamedPart:
        """One part of a session. Raises NotFound."""
        return await self._owners.ask((principal, id), partial(self._part, principal, id, name))

    async def _part(self, principal: str, id: str, name: str) -> NamedPart:
        found = await self._found(await self._sessions.expect(principal, id), name)
        if found is None:
            raise NotFound("item", name)
        return NamedPart(name, found[1])

    async def remove(self, principal: str, id: str, name: str) -> Session:
        """Take a part away, a call with its result. What came after it stays, and is read anew at the next turn.

        Raises:
            NotFound, SessionBusy, SessionPaused.
        """
        return await self._owners.ask((principal, id), partial(self._remove, principal, id, name))

    async def _remove(self, principal: str, id: str, name: str) -> Session:
        session = await self._at_rest(principal, id)
        found = await self._found(session, name)
        if found is None:
            raise NotFound("item", name)
        draft = Draft(session)
        draft.take_away(*without(session.items, *found))
        draft.mark_turns(draft.kept)
        _save(draft)
        await self._directory.commit(draft)
        return session

    async def _found(self, session: Session, name: str) -> tuple[int, Part] | None:
        place = place_named(session, name)
        if place is None:
            return None
        return await _apart([session.items[place]], lambda: find(session, name))

    async def _at_rest(self, principal: str, id: str) -> Session:
        session = await self._sessions.expect(principal, id)
        await expect_at_rest(self._services, self._runs, session)
        return session


def _save(draft: Draft) -> None:
    """Who changes a session's items by its id has named it."""
    draft.save()
    draft.ahead.implicit, draft.ahead.expires_at = False, None


def _paged(session: Session, place: int, after: str | None, limit: int, step: int) -> PartPage:
    found: list[NamedPart] = []
    while 0 <= place < len(session.items) and len(found) <= limit:
        parts = named_parts(session, place)[::step]
        names = [one.name for one in parts]
        found += parts[names.index(after) + 1 if after in names else 0 :]
        place += step
    return PartPage(found[:limit], len(found) > limit)


async def _apart(items: Iterable[Item], work: Callable[[], T]) -> T:
    """What comes of work with these items, in a thread where they are large: a leg alone may add others meanwhile."""
    if sum(map(item_bytes, items)) <= LARGE_BYTES:
        return work()
    return await anyio.to_thread.run_sync(work)


def _expect_room(items: Sequence[Item]) -> None:
    if len(items) > MOST_ITEMS:
        raise InvalidRequest(f"items: a conversation has at most {MOST_ITEMS} items", "items")
    if sum(map(item_bytes, items)) > MOST_BYTES:
        raise InvalidRequest(f"items: a conversation's items take at most {MOST_BYTES} bytes", "items")
