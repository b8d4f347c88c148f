"""What every store keeps, whatever its database."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from tenuto.errors import InvalidRequest, StoreFailed
from tenuto.sessions.changes import (
    AddItems,
    AddSampled,
    AddSpans,
    AddTold,
    BeginLeg,
    CutItems,
    CutSpans,
    DeleteLeg,
    DeleteSession,
    EndLeg,
    MarkTurns,
    PutNote,
    SaveCall,
    SaveKey,
    SavePause,
    SaveProgress,
    SaveRun,
    SaveSession,
    whole,
)
from tenuto.sessions.items import (
    AssistantItem,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import (
    CallRecord,
    CallStatus,
    KeyRecord,
    LegEnd,
    LegRecord,
    PauseReason,
    PauseRecord,
    PauseStatus,
    RunRecord,
    RunStatus,
    UnfinishedLeg,
)
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.storage.store import Store
from tenuto.sessions.storage.tables import metadata
from tenuto.sessions.visible import VisibleHistory
from tests.postgresql import missing, running, url_at

STORE = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def empty(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    engine.dispose()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL database for these tests; its tables are emptied before each."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with running() as folder:
        yield url_at(folder)


@pytest.fixture(params=["file", "memory", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    urls = {"file": f"sqlite:///{tmp_path / 'store.db'}", "memory": "sqlite://"}
    url = urls.get(request.param) or request.getfixturevalue("postgresql")
    opened = Store.open(url)
    if request.param == "postgresql":
        empty(url)
    yield opened
    opened.close()


def session_of(*items: Any, id: str = "s", **values: Any) -> Session:
    return Session(uuid4().hex, "alice", id, 1.0, 2.0, items=list(items), **values)


def run_of(session: Session, id: str | None = None, **values: Any) -> RunRecord:
    run = RunRecord(
        id or uuid4().hex, session.uid, session.principal, "m", RunStatus.RUNNING, 1.0, 2.0, 0, {"a": [1]}, {"n": 1}
    )
    return replace(run, **values)


def leg_of(run: RunRecord) -> LegRecord:
    return LegRecord(uuid4().hex, run.id, run.session_uid, run.principal, run.model, 0, 1, 1.0, {"a": [1]})


def call_of(run: RunRecord, round: int, position: int, **values: Any) -> CallRecord:
    call = CallRecord(run.id, f"c{round}{position}", round, position, "f", "{}", True, CallStatus.STARTED)
    return replace(call, **values)


def pause_of(run: RunRecord, **values: Any) -> PauseRecord:
    reason, status = PauseReason.APPROVAL, PauseStatus.OPEN
    pause = PauseRecord(uuid4().hex, run.id, run.session_uid, run.principal, reason, "c", "f", "{}", status, 1.0, 9.0)
    return replace(pause, **values)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
times = st.floats(0, 1e12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
calls = st.builds(ToolCall, texts, texts, texts, st.booleans())
items = st.one_of(
    st.builds(SystemItem, texts),
    st.builds(UserItem, texts),
    st.builds(NoteItem, texts),
    st.builds(AssistantItem, texts, texts, st.lists(calls, max_size=2).map(tuple), st.booleans()),
    st.builds(ToolResultItem, texts, texts, texts, st.booleans(), st.booleans(), st.none() | texts, json_values),
)
spans = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
tools = st.builds(ToolSpec, names, texts, objects, st.booleans())


@st.composite
def stored_sessions(draw: st.DrawFn) -> Session:
    body = draw(st.lists(items, max_size=5))
    ledgers = {}
    for name in draw(st.sets(names, max_size=2)):
        ledger = Ledger(name)
        for span in draw(st.lists(spans, min_size=min(1, len(body)), max_size=len(body))):
            ledger.append(span)
        if ledger.items:
            ledgers[name] = ledger
    return Session(
        uid=uuid4().hex,
        principal=draw(names),
        id=uuid4().hex,
        created_at=draw(times),
        updated_at=draw(times),
        implicit=draw(st.booleans()),
        user=draw(st.none() | names),
        expires_at=draw(st.none() | times),
        parent=draw(st.none() | st.builds(Parent, names, st.integers(0, 1000))),
        items=body,
        ledgers=ledgers,
        server_tools=draw(st.none() | st.lists(tools, max_size=2).map(tuple)),
        approved=draw(st.frozensets(names, max_size=3)),
        open_run=draw(st.none() | names),
    )


@pytest.mark.slow
@STORE
@given(session=stored_sessions())
async def test_a_session_comes_back_as_it_was_kept(store: Store, session: Session) -> None:
    await store.commit(*whole(session))
    assert await store.session(session.principal, session.id) == session
    assert await store.session_by_uid(session.uid) == session
    assert await store.address(session.uid) == (session.principal, session.id)


@pytest.mark.slow
@STORE
@given(
    changes=st.fixed_dictionaries(
        {
            "model": names,
            "status": st.sampled_from(RunStatus),
            "created_at": times,
            "updated_at": times,
            "first_item": st.integers(0, 10**6),
            "options": objects,
            "usage": objects,
            "reason": st.none() | st.sampled_from(PauseReason),
            "stop_reason": st.none() | names,
            "expires_at": st.none() | times,
            "error": st.none() | names,
            "input_digest": st.none() | names,
            "answer": st.none() | objects,
        }
    )
)
async def test_a_run_is_kept_as_it_was_saved_last(store: Store, changes: dict[str, Any]) -> None:
    session = session_of(id=uuid4().hex)
    run = run_of(session)
    await store.commit(SaveSession(session), SaveRun(run))
    assert await store.run(run.id) == run
    changed = replace(run, **changes)
    await store.commit(SaveRun(changed))
    assert await store.run(run.id) == changed
    assert await store.session_runs(session.uid) == [changed]
    assert (changed.id in [one.id for one in await store.open_runs()]) == changed.status.is_open


async def test_calls_are_listed_by_round_and_position_as_saved_last(store: Store) -> None:
    session = session_of()
    run = run_of(session)
    made = [call_of(run, 1, 1), call_of(run, 0, 0, server=False), call_of(run, 1, 0, repeatable=True)]
    await store.commit(SaveSession(session), SaveRun(run), *(SaveCall(call) for call in made))
    done = replace(made[0], status=CallStatus.FINISHED, result="{}", started_at=1.5, finished_at=2.5)
    await store.commit(SaveCall(done))
    assert await store.calls(run.id) == [made[1], made[2], done]


async def test_pauses_are_found_by_id_by_run_and_while_open(store: Store) -> None:
    session = session_of()
    run = run_of(session)
    first, second = pause_of(run), pause_of(run, created_at=2.0, reason=PauseReason.INPUT, message="which?")
    await store.commit(SavePause(second), SavePause(first), SaveRun(run), SaveSession(session))
    answered = replace(first, status=PauseStatus.APPROVED, decided_at=3.0, remember=True)
    await store.commit(SavePause(answered))
    assert await store.pause(first.id) == answered
    assert await store.run_pauses(run.id) == [answered, second]
    assert await store.open_pauses() == [second]
    assert await store.pause("other") is None


async def test_a_leg_keeps_what_it_told_and_ends_once(store: Store) -> None:
    session = session_of(UserItem("a"))
    run, other = run_of(session), run_of(session)
    leg, beside = leg_of(run), leg_of(other)
    await store.commit(SaveSession(session), SaveRun(run), SaveRun(other), BeginLeg(leg), BeginLeg(beside))
    for start, events in ((0, "a"), (3, "c"), (0, "b")):
        await store.commit(AddTold(leg.id, session.uid, start, events))
    assert await store.told(leg.id) == ["b", "c"], "in order, and what came last for a place"
    assert await store.leg(leg.id) == leg
    end = LegEnd(run.id, session.uid, 1, RunStatus.COMPLETED, 3.0, {"n": 1}, {"stop_reason": "end"})
    await store.commit(EndLeg(end))
    await store.commit(EndLeg(replace(end, status=RunStatus.INTERRUPTED)))
    assert await store.leg(leg.id) == leg.ended(end)
    assert await store.leg(beside.id) == beside
    await store.commit(DeleteLeg(leg.id))
    assert await store.leg(leg.id) is None
    assert await store.told(leg.id) == []
    await store.commit(DeleteSession(session.uid))
    assert await store.leg(beside.id) is None


async def test_a_leg_keeps_what_its_open_round_sampled_until_that_is_over(store: Store) -> None:
    session = session_of(UserItem("a"))
    run = run_of(session)
    leg = replace(leg_of(run), progress={})
    await store.commit(SaveSession(session), SaveRun(run), BeginLeg(leg))
    assert await store.unfinished_leg(run.id) == UnfinishedLeg(leg, (), (), ())
    await store.commit(SaveProgress(leg.id, session.uid, {"start": 1}))
    pieces = (0, (7, 8), None), (2, (9,), "[9]"), (0, (5, 6), "[5,6]")
    for start, tokens, logprobs in pieces:
        await store.commit(AddSampled(leg.id, session.uid, start, tokens, logprobs))
    await store.commit(AddTold(leg.id, session.uid, 0, "told"))
    kept = replace(leg, progress={"start": 1})
    assert await store.unfinished_leg(run.id) == UnfinishedLeg(kept, ("told",), (5, 6, 9), ("[5,6]", "[9]"))
    await store.commit(SaveProgress(leg.id, session.uid, {"start": 2}))
    assert await store.unfinished_leg(run.id) == UnfinishedLeg(replace(kept, progress={"start": 2}), ("told",), (), ())
    await store.commit(AddSampled(leg.id, session.uid, 0, (1,)))
    end = LegEnd(run.id, session.uid, 1, RunStatus.COMPLETED, 3.0, None, {})
    await store.commit(EndLeg(end))
    assert await store.unfinished_leg(run.id) is None
    assert await store.leg(leg.id) == leg.ended(end)


async def test_a_leg_that_ends_with_its_process_has_nothing_to_go_on_with(store: Store) -> None:
    session = session_of(UserItem("a"))
    run = run_of(session)
    await store.commit(SaveSession(session), SaveRun(run), BeginLeg(leg_of(run)))
    assert await store.unfinished_leg(run.id) is None


async def test_a_leg_whose_items_are_cut_has_no_end_any_more(store: Store) -> None:
    session = session_of(UserItem("a"), UserItem("b"))
    runs = [run_of(session) for _ in range(3)]
    legs = [leg_of(run) for run in runs]
    await store.commit(*whole(session), *map(SaveRun, runs), *map(BeginLeg, legs))
    ends = [LegEnd(run.id, session.uid, until, RunStatus.COMPLETED, 3.0, None, {}) for until, run in enumerate(runs)]
    await store.commit(*map(EndLeg, ends), CutItems(session.uid, 1))
    kept = [await store.leg(leg.id) for leg in legs]
    assert [None if leg is None else leg.until for leg in kept] == [0, 1, None]
    assert kept[2] is not None
    assert kept[2].status is RunStatus.COMPLETED


async def test_cutting_items_takes_their_tokens_along(store: Store) -> None:
    session = session_of(*(UserItem(str(n)) for n in range(4)))
    spans = ((1,), (2, 2), (3,))
    await store.commit(*whole(session), AddSpans(session.uid, "f", 0, spans), AddSpans(session.uid, "g", 0, spans[:1]))
    await store.commit(CutItems(session.uid, 1), AddItems(session.uid, 1, (UserItem("new"),)))
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.items == [UserItem("0"), UserItem("new")]
    assert {name: (one.tokens[:], one.offsets) for name, one in found.ledgers.items()} == {
        "f": ([1], [0]),
        "g": ([1], [0]),
    }


async def test_tokens_are_cut_in_one_ledger_or_in_all(store: Store) -> None:
    session = session_of(UserItem("a"), UserItem("b"))
    both = [AddSpans(session.uid, name, 0, ((1,), (2,))) for name in ("f", "g")]
    await store.commit(*whole(session), *both, CutSpans(session.uid, "f", 1))
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert {name: ledger.items for name, ledger in found.ledgers.items()} == {"f": 1, "g": 2}
    await store.commit(CutSpans(session.uid, None, 0))
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.ledgers == {}


@pytest.mark.slow
@STORE
@given(data=st.data())
async def test_a_ledger_in_the_store_follows_one_in_memory(store: Store, data: st.DataObject) -> None:
    session = session_of(id=uuid4().hex)
    await store.commit(SaveSession(session))
    ledger = session.ledgers["f"] = Ledger("f")
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            added = data.draw(st.lists(spans, min_size=1, max_size=3))
            start, new = len(session.items), tuple(UserItem(str(span)) for span in added)
            behind = ledger.items
            session.items.extend(new)
            missing = [data.draw(spans) for _ in range(start - behind)]
            for span in [*missing, *added]:
                ledger.append(span)
            await store.commit(
                AddItems(session.uid, start, new), AddSpans(session.uid, "f", behind, (*missing, *added))
            )
        elif data.draw(st.booleans()):
            keep = data.draw(st.integers(0, len(session.items)))
            del session.items[keep:]
            ledger.cut(keep)
            await store.commit(CutItems(session.uid, keep))
        else:
            keep = data.draw(st.integers(0, len(session.items)))
            ledger.cut(keep)
            await store.commit(CutSpans(session.uid, "f", keep))
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.items == session.items
    assert found.ledgers.get("f", Ledger("f")) == ledger


async def test_a_ledger_cannot_cover_an_item_that_is_not_there(store: Store) -> None:
    session = session_of(UserItem("a"))
    await store.commit(*whole(session))
    with pytest.raises(StoreFailed):
        await store.commit(AddSpans(session.uid, "f", 0, ((1,), (2,))))
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.ledgers == {}


async def test_a_commit_is_kept_as_a_whole_or_not_at_all(store: Store) -> None:
    session = session_of(UserItem("a"))
    await store.commit(*whole(session))
    with pytest.raises(StoreFailed):
        await store.commit(PutNote("n", "k", "v"), AddItems(session.uid, 0, (UserItem("twice"),)))
    assert await store.notes("n") == {}
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.items == [UserItem("a")]


async def test_a_bad_commit_fails_alone_among_those_that_share_its_transaction(store: Store) -> None:
    bad = AddItems("nobody", 0, (UserItem("x"),))
    outcomes = await asyncio.gather(
        *(store.commit(bad if n % 5 == 0 else PutNote("n", str(n), "v")) for n in range(50)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreFailed if n % 5 == 0 else type(None) for n in range(50)]
    assert list(await store.notes("n")) == [str(n) for n in range(50) if n % 5]


async def test_what_cannot_be_written_is_refused_and_nothing_of_it_kept(store: Store) -> None:
    session = session_of(UserItem("a"))
    with pytest.raises(StoreFailed):
        await store.commit(*whole(session), AddSpans(session.uid, "f", 0, ((-1,),)))
    with pytest.raises(StoreFailed):
        await store.commit(PutNote("n", "k", "v"), PutNote("n", "l", "\ud800"))
    assert await store.session_by_uid(session.uid) is None
    assert await store.notes("n") == {}


async def test_commits_of_many_sessions_at_once_keep_the_order_of_each(store: Store) -> None:
    async def work(number: int) -> Session:
        session = session_of(id=str(number))
        run = run_of(session)
        await store.commit(SaveSession(session), SaveRun(run))
        waiting = []
        for step in range(12):
            new = UserItem(f"{number}.{step}")
            if step % 4 == 3:
                del session.items[-2:]
                waiting.append(store.commit(CutItems(session.uid, len(session.items))))
            start = len(session.items)
            session.items.append(new)
            waiting.append(store.commit(AddItems(session.uid, start, (new,)), SaveSession(session)))
        await asyncio.gather(*waiting)
        return session

    for session in await asyncio.gather(*(work(number) for number in range(20))):
        assert await store.session_by_uid(session.uid) == session


async def test_values_are_taken_when_the_commit_is_asked_for(store: Store) -> None:
    session = session_of()
    commit = asyncio.ensure_future(store.commit(SaveSession(session)))
    await asyncio.sleep(0)
    session.user = "later"
    await commit
    found = await store.session_by_uid(session.uid)
    assert found is not None
    assert found.user is None


async def test_a_read_sees_every_commit_that_has_returned(store: Store) -> None:
    async def write_and_read(number: int) -> str | None:
        await store.commit(PutNote("n", str(number), "here"))
        return (await store.notes("n")).get(str(number))

    assert set(await asyncio.gather(*(write_and_read(number) for number in range(40)))) == {"here"}


async def test_deleting_a_session_deletes_all_that_belongs_to_it_and_nothing_else(store: Store) -> None:
    kept, gone = session_of(UserItem("a"), id="kept"), session_of(UserItem("a"), id="gone")
    runs = {}
    for session in (kept, gone):
        run = runs[session.id] = run_of(session, id=f"run {session.id}")
        await store.commit(
            *whole(session),
            AddSpans(session.uid, "f", 0, ((1,),)),
            SaveRun(run),
            SaveCall(call_of(run, 0, 0)),
            SavePause(pause_of(run)),
            SaveKey("alice", session.id, run.id, "d", 9.0),
            PutNote(session.uid, "k", "v"),
        )
    await store.commit(DeleteSession(gone.uid))
    for session, count in ((kept, 1), (gone, 0)):
        run = runs[session.id]
        assert [
            await store.session_by_uid(session.uid) is not None,
            await store.run(run.id) is not None,
            len(await store.calls(run.id)),
            len(await store.run_pauses(run.id)),
            await store.key("alice", session.id) is not None,
            len(await store.notes(session.uid)),
        ] == [count] * 6
    replacement = session_of(id="gone")
    await store.commit(SaveSession(replacement))
    assert await store.session("alice", "gone") == replacement


async def test_an_id_can_be_replaced_in_one_commit(store: Store) -> None:
    old, new = session_of(UserItem("old")), session_of(UserItem("new"))
    await store.commit(*whole(old))
    await store.commit(DeleteSession(old.uid), *whole(new))
    assert await store.session("alice", "s") == new


async def test_two_sessions_of_a_principal_cannot_have_one_id(store: Store) -> None:
    await store.commit(SaveSession(session_of()))
    with pytest.raises(StoreFailed):
        await store.commit(SaveSession(session_of()))
    await store.commit(SaveSession(replace(session_of(), principal="bob")))


async def test_notes_keep_the_order_in_which_they_were_first_written(store: Store) -> None:
    for key in ("b", "a", "c", "b"):
        await store.commit(PutNote("n", key, key + "!"))
    await store.commit(PutNote("n", "a", "changed"))
    assert list((await store.notes("n")).items()) == [("b", "b!"), ("a", "changed"), ("c", "c!")]


async def test_a_key_stands_for_its_last_run_until_it_expires(store: Store) -> None:
    session = session_of()
    first, second = run_of(session), run_of(session)
    await store.commit(SaveSession(session), SaveRun(first), SaveRun(second))
    await store.commit(SaveKey("alice", "k", first.id, "d", 5.0))
    await store.commit(SaveKey("alice", "k", second.id, "e", 10.0))
    assert await store.key("alice", "k") == KeyRecord(second.id, "e", 10.0)
    assert await store.key("bob", "k") is None
    await store.expire_keys(9.9)
    assert await store.key("alice", "k") is not None
    await store.expire_keys(10.0)
    assert await store.key("alice", "k") is None


async def test_sessions_past_their_time_go_unless_a_run_is_open(store: Store) -> None:
    sessions = {
        "past": session_of(id="past", expires_at=5.0),
        "working": session_of(id="working", expires_at=5.0),
        "later": session_of(id="later", expires_at=15.0),
        "for ever": session_of(id="for ever"),
    }
    await store.commit(
        *(SaveSession(session) for session in sessions.values()), PutNote(sessions["past"].uid, "k", "v")
    )
    run, ended = run_of(sessions["working"]), run_of(sessions["past"], status=RunStatus.COMPLETED)
    await store.commit(SaveRun(run), SaveRun(ended))
    assert await store.expired(10.0) == [("alice", "past")]
    found = [await store.expired_uid("alice", id, 10.0) for id in ("past", "working", "later", "for ever", "none")]
    assert found == [sessions["past"].uid, None, None, None, None]
    await store.commit(SaveRun(replace(run, status=RunStatus.EXPIRED)))
    assert set(await store.expired(10.0)) == {("alice", "past"), ("alice", "working")}


async def test_sessions_are_listed_newest_first_in_pages_without_gaps(store: Store) -> None:
    made = [replace(session_of(id=f"s{n}"), created_at=float(n // 2), implicit=n % 3 == 0) for n in range(9)]
    await store.commit(*(SaveSession(session) for session in made), SaveSession(replace(session_of(), principal="bob")))
    newest = [one.id for one in sorted(made, key=lambda one: (one.created_at, one.id), reverse=True)]
    listed: list[str] = []
    while page := await store.sessions("alice", implicit=True, limit=2, after=listed[-1] if listed else None):
        listed += [one.id for one in page]
    assert listed == newest
    explicit = await store.sessions("alice", implicit=False, limit=100)
    assert [one.id for one in explicit] == [id for id in newest if int(id[1:]) % 3]
    with pytest.raises(InvalidRequest, match="nowhere"):
        await store.sessions("alice", after="nowhere")


def digests(items: list[Item]) -> list[str]:
    """What names the visible items up to each."""
    history = VisibleHistory()
    history.follow(items)
    return [digest.hex() for digest in history.digests]


async def test_sessions_are_found_by_what_their_client_saw(store: Store) -> None:
    seen: list[Item] = [UserItem("hi"), AssistantItem("ho"), UserItem("and?"), AssistantItem("so")]
    marks = digests(seen)[::-1]
    short, long = session_of(*seen[:2], id="short"), session_of(*seen, id="long", user="u")
    await store.commit(*whole(short), *whole(long))
    assert await store.candidates("alice", None, marks) == [(short.uid, 2)]
    assert await store.candidates("alice", "u", marks) == [(long.uid, 4)]
    assert await store.candidates("bob", None, marks) == []
    assert await store.candidates("alice", None, []) == []
    twin = session_of(*seen, id="twin")
    await store.commit(*whole(twin))
    assert await store.candidates("alice", None, marks) == [(twin.uid, 4)]


async def test_a_session_that_has_gone_further_is_found_by_the_ends_of_its_turns(store: Store) -> None:
    cut = AssistantItem("so", incomplete=True)
    call = AssistantItem("", "", (ToolCall("c", "f", "{}"),))
    seen: list[Item] = [UserItem("hi"), AssistantItem("ho"), UserItem("and?"), cut, UserItem("more"), call]
    session = session_of(*seen)
    marks = digests(seen)
    await store.commit(*whole(session))
    for count in range(1, len(seen)):
        found = await store.candidates("alice", None, [marks[count - 1]])
        assert found == ([(session.uid, 2)] if count == 2 else [])
    session.items[3:] = [AssistantItem("so")]
    turn = digests(session.items)
    await store.commit(
        CutItems(session.uid, 1),
        AddItems(session.uid, 1, tuple(session.items[1:])),
        SaveSession(session),
        MarkTurns(session, 3),
    )
    assert await store.candidates("alice", None, turn[1:2]) == [], "a mark goes with its item"
    await store.commit(MarkTurns(session, 0))
    assert await store.candidates("alice", None, turn[1:2]) == [(session.uid, 2)]
    assert await store.candidates("alice", None, turn[3:]) == [(session.uid, 4)]
    assert await store.candidates("bob", None, turn[1:2]) == []
    assert await store.candidates("alice", "u", turn[1:2]) == []


async def test_closing_writes_what_is_queued_and_refuses_more(store: Store) -> None:
    waiting = [asyncio.ensure_future(store.commit(PutNote("n", str(n), "v"))) for n in range(30)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    assert await asyncio.gather(*waiting) == [None] * 30
    with pytest.raises(StoreFailed):
        await store.commit(PutNote("n", "late", "v"))
