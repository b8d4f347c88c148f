"""A database that is lost in the middle of a commit: only it knows what was kept, and nobody says otherwise."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tenuto.errors import CommitUnsettled, StoreFailed
from tenuto.sessions.changes import AddItems, whole
from tenuto.sessions.directory import Directory
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import UserItem
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store

HI, HO = UserItem("hi"), UserItem("ho")


class Line:
    """The way to the database: it breaks in the next commit, once that has `kept` or before that."""

    breaks: bool | None = None

    def __init__(self) -> None:
        line = self

        class Connection(sqlite3.Connection):
            def commit(self) -> None:
                kept, line.breaks = line.breaks, None
                if kept is None or kept:
                    super().commit()
                if kept is not None:
                    self.close()
                    raise sqlite3.ProgrammingError("Cannot operate on a closed database.")

        self._connection = Connection
        event.listen(Engine, "do_connect", self._connect)

    def _connect(self, _dialect: Any, _record: Any, _given: Any, named: dict[str, Any]) -> None:
        named["factory"] = self._connection

    def close(self) -> None:
        event.remove(Engine, "do_connect", self._connect)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path, line: Line) -> Iterator[Store]:
    del line
    opened = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.close()


async def session_in(store: Store) -> Session:
    session = Session("u", "alice", "s", 1.0, 2.0, items=[HI])
    await store.commit(*whole(session))
    return session


@pytest.mark.parametrize("kept", [True, False])
async def test_nobody_says_what_was_kept_when_the_database_is_lost_in_a_commit(
    store: Store, line: Line, kept: bool
) -> None:
    await session_in(store)
    line.breaks = kept
    with pytest.raises(CommitUnsettled, match="lost in a commit"):
        await store.commit(AddItems("u", 1, (HO,)))
    assert store.trouble is not None
    found = await store.session_by_uid("u")
    assert found is not None
    assert found.items == ([HI, HO] if kept else [HI])
    await store.commit(AddItems("u", len(found.items), (HI,)))
    assert store.trouble is None


async def test_commits_that_were_lost_together_are_not_tried_again(store: Store, line: Line) -> None:
    await session_in(store)
    line.breaks = True
    both = [AddItems("u", 1, (HO,)), AddItems("u", 2, (HO,))]
    outcomes = await asyncio.gather(*map(store.commit, both), return_exceptions=True)
    assert CommitUnsettled in {type(outcome) for outcome in outcomes}
    assert all(outcome is None or isinstance(outcome, CommitUnsettled) for outcome in outcomes), outcomes
    found = await store.session_by_uid("u")
    assert found is not None
    assert found.items == [HI, HO, HO]


async def test_what_the_database_refuses_in_a_commit_was_not_kept(store: Store) -> None:
    await session_in(store)
    with pytest.raises(StoreFailed) as raised:
        await store.commit(AddItems("u", 0, (HO,)))
    assert not isinstance(raised.value, CommitUnsettled)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_session_is_read_again_after_a_commit_that_was_lost(store: Store, line: Line, kept: bool) -> None:
    await session_in(store)
    directory = Directory(store)
    session = await directory.get("alice", "s")
    assert session is not None
    draft = Draft(session)
    draft.add([HO])
    line.breaks = kept
    with pytest.raises(CommitUnsettled):
        await directory.commit(draft)
    again = await directory.get("alice", "s")
    assert again is not None
    assert again is not session
    assert again.items == ([HI, HO] if kept else [HI])


@pytest.mark.parametrize("kept", [True, False])
async def test_a_note_is_there_or_not_after_a_commit_that_was_lost(store: Store, line: Line, kept: bool) -> None:
    await session_in(store)
    directory = Directory(store)
    session = await directory.get("alice", "s")
    assert session is not None
    line.breaks = kept
    with pytest.raises(CommitUnsettled):
        await directory.put_note("u", "k", "x")
    assert session.notes == {}
    again = await directory.get("alice", "s")
    assert again is not None
    assert again.notes == ({"k": "x"} if kept else {})


@pytest.mark.parametrize("kept", [True, False])
async def test_a_session_is_there_or_not_after_a_delete_that_was_lost(store: Store, line: Line, kept: bool) -> None:
    await session_in(store)
    directory = Directory(store)
    held = await directory.get("alice", "s")
    line.breaks = kept
    with pytest.raises(CommitUnsettled):
        await directory.delete("alice", "s")
    found = await directory.get("alice", "s")
    assert (found is None) is kept
    assert found is not held


@pytest.mark.parametrize("kept", [True, False])
async def test_an_import_that_was_lost_is_in_the_place_of_the_other_or_not(
    store: Store, line: Line, kept: bool
) -> None:
    await session_in(store)
    directory = Directory(store)
    held = await directory.get("alice", "s")
    assert held is not None
    line.breaks = kept
    with pytest.raises(CommitUnsettled):
        await directory.install(Session("v", "alice", "s", 1.0, 2.0, items=[HO]))
    found = await directory.get("alice", "s")
    assert found is not None
    assert found.uid == ("v" if kept else "u")
