"""Notes belong to their session: they lie where it lies, go with it, and are no more than so many."""

import gc
from pathlib import Path

import pytest

from tenuto.errors import InvalidRequest, NotFound
from tenuto.sessions.notes import MOST_BYTES, MOST_NOTES
from tenuto.sessions.session import Session
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import ALICE, DAY, Clock, Process, asks, call

SECRET = "a-word-that-no-file-may-have"
RULES = (
    asks("note", call("notes__put", key="k", text=SECRET)),
    asks("read", call("notes__get", key="k")),
    asks("list", call("notes__list")),
)


def is_on_disk(process: Process, word: str) -> bool:
    """Whether a word stands in any file of the process's database."""
    path = Path(process.url.removeprefix("sqlite:///"))
    return any(word.encode() in file.read_bytes() for file in path.parent.glob(path.name + "*"))


async def rows(process: Process) -> int:
    """How many notes the database has, whoever's."""
    found = await process.store._read(lambda c: c.exec_driver_sql("SELECT count(*) FROM notes").scalar_one())
    return int(found)


@pytest.mark.parametrize("stored", [False, True])
async def test_notes_are_on_disk_only_where_their_session_is(open_process: Open, stored: bool) -> None:
    process = await open_process(*RULES)
    assert (await process.ask("note", stored=stored)).text == "saved"
    assert (await process.ask("read")).text == SECRET
    assert (await process.ask("list")).text == "k"
    assert is_on_disk(process, SECRET) is stored
    assert await rows(process) == int(stored)


@pytest.mark.parametrize("stored", [False, True])
async def test_forks_and_documents_have_the_notes(open_process: Open, stored: bool) -> None:
    process = await open_process(*RULES)
    await process.ask("note", stored=stored)
    await process.runner.fork_session(ALICE, "s", None, "twin")
    assert (await process.ask("read", "twin")).text == SECRET
    document = await process.runner.export_session(ALICE, "twin")
    assert document["notes"] == {"k": SECRET}
    assert is_on_disk(process, SECRET) is stored
    await process.runner.import_session(ALICE, "again", document)
    assert (await process.ask("read", "again")).text == SECRET


async def test_notes_of_a_stored_session_outlive_the_process(open_process: Open, tmp_path: Path) -> None:
    process = await open_process(*RULES)
    await process.ask("note")
    later = await open_process(*RULES, left=process.left_behind(tmp_path))
    assert (await later.ask("read")).text == SECRET


@pytest.mark.parametrize("stored", [False, True])
async def test_notes_go_with_a_session_that_is_deleted(open_process: Open, stored: bool) -> None:
    process = await open_process(*RULES)
    await process.ask("note", stored=stored)
    session = await process.directory.get("alice", "s")
    assert session is not None
    await process.runner.delete_session(ALICE, "s")
    assert await rows(process) == 0
    with pytest.raises(NotFound):
        await process.directory.put_note(session.uid, "late", "x")
    assert await rows(process) == 0
    assert (await process.ask("list", stored=stored)).text == "no notes"


async def test_notes_go_with_a_session_whose_time_is_over(open_process: Open, clock: Clock) -> None:
    process = await open_process(*RULES)
    first = await process.ask("note", None)
    assert first.text == "saved"
    assert await rows(process) == 1
    clock.now += DAY + 1
    await process.runner._sessions.expire()
    assert await rows(process) == 0


async def test_notes_go_with_a_session_that_another_replaces(open_process: Open) -> None:
    process = await open_process(*RULES)
    await process.ask("hi", "other")
    document = await process.runner.export_session(ALICE, "other")
    await process.ask("note")
    await process.runner.import_session(ALICE, "s", document)
    assert await rows(process) == 0


async def test_notes_in_memory_only_go_with_an_idle_session(open_process: Open, clock: Clock) -> None:
    process = await open_process(*RULES)
    await process.ask("note", stored=False)
    before = process.directory.nbytes()["unstored_sessions"]
    await process.directory.put_note((await in_memory(process)).uid, "large", "x" * 10_000)
    assert process.directory.nbytes()["unstored_sessions"] >= before + 10_000
    clock.now += 3601
    await process.directory.tidy()
    gc.collect()
    assert process.directory.nbytes()["unstored_sessions"] == 0
    assert await process.directory.get("alice", "s") is None


async def in_memory(process: Process) -> Session:
    session = await process.directory.get("alice", "s")
    assert session is not None
    return session


@pytest.mark.parametrize("stored", [False, True])
async def test_the_notes_of_a_session_are_bounded_however_they_come(open_process: Open, stored: bool) -> None:
    last = [call("notes__put", key=f"last{number}", text="x") for number in range(10)]
    process = await open_process(asks("last", *last), *RULES)
    await process.ask("hi", stored=stored)
    uid = (await in_memory(process)).uid
    for number in range(MOST_NOTES - 5):
        await process.directory.put_note(uid, str(number), "x")
    await process.ask("last")
    document = await process.runner.export_session(ALICE, "s")
    assert len(document["notes"]) == MOST_NOTES
    for notes in ({str(n): "" for n in range(MOST_NOTES + 1)}, {"k": "x" * MOST_BYTES}):
        with pytest.raises(InvalidRequest) as refused:
            await process.runner.import_session(ALICE, "s", document | {"notes": notes})
        assert refused.value.param == "notes"
