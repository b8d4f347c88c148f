"""What repeats is kept once, and goes when nobody names it any more."""

import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

import tenuto.sessions.storage
from tenuto.sessions.blobs import BLOCKS, SCHEMAS, TOOLS, Pool, Shared, ToolBlock
from tenuto.sessions.changes import DeleteSession, SaveRun, SaveSession, whole
from tenuto.sessions.items import ToolSpec, UserItem
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import PauseStatus, RunRecord, RunStatus
from tenuto.sessions.session import Session
from tenuto.sessions.storage.bases import Bases, joined
from tenuto.sessions.storage.store import Store
from tenuto.sessions.storage.writes import pack

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}


def tools(count: int = 60) -> tuple[ToolSpec, ...]:
    """A tool block as a request brings it: equal to the last one, and made of other objects."""
    return tuple(
        ToolSpec(f"tool_{number}", "what it does " * 80, json.loads(json.dumps(SCHEMA))) for number in range(count)
    )


def run_of(session: Session, id: str) -> RunRecord:
    shared: dict[str, Any] = {
        "tools": BLOCKS.of(ToolBlock(tools(), frozenset({"tool_0"}))),
        "answer_schema": SCHEMAS.of(json.loads(json.dumps(SCHEMA))),
    }
    return RunRecord(id, session.uid, "alice", "m", RunStatus.RUNNING, 1.0, 2.0, 0, {"stop": [], **shared}, {})


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.close()


def blobs(path: Path) -> int:
    engine = create_engine(f"sqlite:///{path / 'store.db'}")
    with engine.begin() as connection:
        count = connection.execute(text("SELECT count(*) FROM blobs")).scalar_one()
    engine.dispose()
    return int(count)


async def one_shot(store: Store, number: int) -> Session:
    """A session of one turn, as a client makes it that sends its whole tool block with every question."""
    ledger = Ledger("f")
    ledger.append([*range(30_000), number])
    session = Session(f"u{number}", "alice", f"s{number}", 1.0, 2.0, items=[UserItem(f"hi {number}")])
    session.ledgers["f"], session.server_tools = ledger, tools()
    await store.commit(*whole(session), SaveRun(run_of(session, f"r{number}")))
    return session


async def test_a_tool_block_is_on_the_disk_once_however_many_runs_and_sessions_have_it(
    kept: Store, tmp_path: Path
) -> None:
    for number in range(40):
        await one_shot(kept, number)
    kept.close()
    size = (tmp_path / "store.db").stat().st_size
    assert size < 40 * 4096 + 600_000, "the blobs, and little for each session"
    assert blobs(tmp_path) == 4


async def test_what_is_kept_once_comes_back_whole(kept: Store) -> None:
    session = await one_shot(kept, 1)
    again = await one_shot(kept, 2)
    for made in (session, again):
        assert await kept.session_by_uid(made.uid) == made
    run = await kept.run("r2")
    assert run == run_of(again, "r2")
    assert run is not None
    block = run.options["tools"]
    assert isinstance(block, Shared)
    assert block.value == ToolBlock(tools(), frozenset({"tool_0"}))
    assert run.options["answer_schema"].value == SCHEMA


async def test_equal_tools_are_one_object_for_all_sessions_and_runs(kept: Store) -> None:
    for number in range(2):
        await one_shot(kept, number)
    first, second = await kept.session("alice", "s0"), await kept.session("alice", "s1")
    assert first is not None and second is not None  # noqa: PT018
    assert first.server_tools is second.server_tools is TOOLS.of(tools()).value
    runs = [await kept.run("r0"), await kept.run("r1")]
    assert len({id(run.options["tools"].value) for run in runs if run is not None}) == 1


async def test_what_no_row_names_any_more_is_swept(kept: Store, tmp_path: Path) -> None:
    first, second = await one_shot(kept, 1), await one_shot(kept, 2)
    await kept.commit(DeleteSession(first.uid))
    await kept.sweep()
    assert blobs(tmp_path) == 4, "the other session has them all"
    await kept.commit(DeleteSession(second.uid))
    await kept.sweep()
    assert blobs(tmp_path) == 0
    third = await one_shot(kept, 3)
    assert await kept.session_by_uid("u3") == third


async def test_room_that_was_deleted_goes_back_to_the_disk(kept: Store, tmp_path: Path) -> None:
    session = Session("u", "alice", "s", 1.0, 2.0, items=[UserItem("x" * 2_000_000)])
    await kept.commit(*whole(session))
    await kept.commit(DeleteSession("u"))
    await kept.sweep()
    kept.close()
    assert (tmp_path / "store.db").stat().st_size < 1_000_000


async def test_a_session_that_freezes_other_tools_lets_the_first_ones_go(kept: Store, tmp_path: Path) -> None:
    session = Session("u", "alice", "s", 1.0, 2.0, server_tools=tools(3))
    await kept.commit(SaveSession(session))
    await kept.commit(SaveSession(replace(session, server_tools=tools(2))))
    await kept.sweep()
    assert blobs(tmp_path) == 1
    found = await kept.session("alice", "s")
    assert found is not None
    assert found.server_tools == tools(2)


ids = st.integers(0, 3)
spans = st.lists(st.tuples(st.integers(0, 900), st.lists(ids, max_size=6), st.integers(0, 900)), min_size=1, max_size=8)


@given(spans)
def test_a_span_comes_back_as_it_was_whatever_it_is_kept_against(shapes: list[tuple[int, list[int], int]]) -> None:
    bases = Bases()
    for head, own, tail in shapes:
        span = pack([*range(head), *own, *range(tail)])
        cut = bases.cut(("f", True), span)
        body = None if cut.base is None else cut.base.body
        assert joined(cut.tokens, body, cut.head, cut.tail) == span


OLD_RUN = {
    "sampling": {"temperature": 0.0},
    "stop": [],
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}],
    "client_tools": ["f"],
    "answer": {"type": "object"},
}


def older(path: Path) -> None:
    """A data folder as the version before this one has left it: a session, its run that waits, and its approval."""
    config = Config()
    config.set_main_option("script_location", str(Path(tenuto.sessions.storage.__file__ or "").parent / "migrations"))
    engine = create_engine(f"sqlite:///{path / 'store.db'}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        rows = {
            "sessions": {
                "uid": "u",
                "principal": "alice",
                "id": "s",
                "implicit": False,
                "created_at": 1.0,
                "updated_at": 2.0,
                "server_tools": json.dumps(OLD_RUN["tools"]),
                "approved": "[]",
                "open_run": "r",
                "items": 1,
                "visible_digest": "d" * 64,
            },
            "items": {"uid": "u", "position": 0, "body": '{"text":"hi","attachments":[],"kind":"user"}'},
            "spans": {"uid": "u", "position": 0, "fingerprint": "f", "tokens": pack([1, 2, 3])},
            "turns": {"uid": "u", "position": 0, "principal": "alice", "digest": "d" * 64},
            "runs": {
                "id": "r",
                "session_uid": "u",
                "principal": "alice",
                "model": "m",
                "status": "paused",
                "created_at": 1.0,
                "updated_at": 2.0,
                "first_item": 0,
                "options": json.dumps(OLD_RUN),
                "usage": "{}",
                "reason": "approval",
                "expires_at": 9.0,
            },
            "pauses": {
                "id": "p",
                "run_id": "r",
                "session_uid": "u",
                "principal": "alice",
                "reason": "approval",
                "call_id": "c",
                "tool": "f",
                "arguments": "{}",
                "status": "open",
                "created_at": 1.0,
                "expires_at": 9.0,
                "remember": False,
            },
        }
        for table, row in rows.items():
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)
        broken = {**rows["runs"], "id": "other", "status": "completed", "options": '{"of": "another version"}'}
        values = ", ".join(f":{name}" for name in broken)
        connection.execute(text(f"INSERT INTO runs ({', '.join(broken)}) VALUES ({values})"), broken)
    engine.dispose()


async def test_a_data_folder_of_the_version_before_opens_with_every_session_run_and_pause(tmp_path: Path) -> None:
    older(tmp_path)
    store = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    tool = ToolSpec("f", "d", {"type": "object"}, strict=True)
    session = await store.session("alice", "s")
    assert session is not None
    assert (session.items, session.server_tools, session.open_run) == ([UserItem("hi")], (tool,), "r")
    assert session.ledgers["f"].tokens == [1, 2, 3]
    run = await store.run("r")
    assert run is not None
    assert run.options["tools"].value == ToolBlock((tool,), frozenset({"f"}))
    assert run.options["answer_schema"].value == {"type": "object"}
    assert (run.options["sampling"], "client_tools" in run.options) == ({"temperature": 0.0}, False)
    pause = await store.pause("p")
    assert pause is not None
    assert pause.status is PauseStatus.OPEN
    assert await store.candidates("alice", None, ["d" * 64]) == [("u", 1)]
    other = await store.run("other")
    assert other is not None
    assert other.options == {"of": "another version"}
    store.close()


def test_a_pool_takes_no_more_memory_than_it_may_whatever_its_values_are_made_of() -> None:
    pool: Pool[Any] = Pool(json.dumps, json.loads, id, 2 << 20)
    tracemalloc.start()
    try:
        for number in range(40):
            pool.of([number, *({} for _ in range(5_000))])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 3 << 20
