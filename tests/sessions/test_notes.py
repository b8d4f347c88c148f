"""Notes of a session, or of a principal outside of sessions: committed before they are there, and bounded."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import CommitUnsettled, NotFound
from tenuto.runtime.notes import Notebooks
from tenuto.sessions import commits
from tenuto.sessions.directory import Directory
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import AssistantItem, UserItem
from tenuto.sessions.notes import MOST_NOTES, NotesFull
from tenuto.sessions.session import Session
from tenuto.sessions.storage.store import Store
from tenuto.tools.builtin import Notes
from tenuto.tools.spec import CallContext

HI, HO = UserItem("hi"), AssistantItem("ho")


async def session_in(directory: Directory, *, stored: bool = True) -> Session:
    session = await directory.get_or_create("alice", "s", stored=stored)
    draft = Draft(session)
    draft.save()
    draft.add([HI])
    await directory.commit(draft)
    return session


async def in_store(store: Store) -> dict[str, str]:
    session = await store.session("alice", "s")
    assert session is not None
    return session.notes


@pytest.mark.parametrize("stored", [True, False])
async def test_notes_that_are_put_at_once_find_the_room_that_there_is(store: Store, stored: bool) -> None:
    directory = Directory(store)
    session = await session_in(directory, stored=stored)
    puts = (directory.put_note(session.uid, str(number), "x") for number in range(MOST_NOTES + 5))
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [NotesFull] * 5
    assert len(session.notes) == MOST_NOTES
    if stored:
        assert await in_store(store) == session.notes


async def test_notes_outside_of_sessions_that_are_put_at_once_find_the_room_that_there_is(store: Store) -> None:
    notebooks = Notebooks(Directory(store), store)
    puts = (notebooks.put("alice", None, str(number), "x") for number in range(MOST_NOTES + 5))
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [NotesFull] * 5
    assert len(await notebooks.notes("alice", None)) == MOST_NOTES
    assert await notebooks.notes("bob", None) == {}


async def test_a_note_that_is_put_while_a_draft_is_committed_is_kept_beside_it(store: Store) -> None:
    directory = Directory(store)
    session = await session_in(directory)
    draft = Draft(session)
    draft.save()
    draft.add([HO])
    await directory.put_note(session.uid, "before", "1")
    await asyncio.gather(directory.commit(draft), directory.put_note(session.uid, "beside", "2"))
    assert session.notes == {"before": "1", "beside": "2"}
    assert session.items == [HI, HO]
    assert await store.session("alice", "s") == session


async def test_a_session_that_was_never_committed_has_no_notes(store: Store) -> None:
    directory = Directory(store)
    session = directory.new("alice")
    with pytest.raises(NotFound):
        await directory.put_note(session.uid, "k", "x")
    assert await store.notes(session.uid) == {}


@pytest.mark.parametrize("stored", [True, False])
async def test_a_note_and_a_delete_at_once_leave_nothing(store: Store, stored: bool) -> None:
    directory = Directory(store)
    session = await session_in(directory, stored=stored)
    puts = [directory.put_note(session.uid, str(number), "x") for number in range(4)]
    await asyncio.gather(*puts[:2], directory.delete("alice", "s"), *puts[2:], return_exceptions=True)
    assert await store.notes(session.uid) == {}
    assert await store.session("alice", "s") is None


async def test_the_model_reads_that_the_session_of_its_notes_is_gone(store: Store) -> None:
    directory = Directory(store)
    notes = Notes(Notebooks(directory, store))
    session = await session_in(directory)
    await directory.delete("alice", "s")
    for uid in (session.uid, "nobody's"):
        for name in ("put", "get", "list"):
            result = await notes.call(name, {"key": "k", "text": "x"}, CallContext("alice", uid, "r", "c"))
            assert result.is_error
            assert "there is no session" in result.text


async def test_what_became_of_a_note_and_a_draft_is_read_when_both_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    store = Store.open(f"sqlite:///{path}")
    directory = Directory(store)
    session = await session_in(directory)
    draft = Draft(session)
    draft.add([HO])
    monkeypatch.setattr(commits, "_COMMIT_S", 0.1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # the store waits for it
        both = (directory.commit(draft), directory.put_note(session.uid, "k", "x"))
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [CommitUnsettled] * 2
        assert session.notes == {}
        connection.rollback()
    monkeypatch.undo()
    again = await directory.get("alice", "s")
    assert again is not None
    assert (again.items, again.notes) == ([HI, HO], {"k": "x"})
    store.close()
