"""The sessions of this process."""

import asyncio
import gc
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import anyio
import pytest

from tenuto.errors import Conflict, InvalidRequest, NotFound, Overloaded, SessionBusy, StoreFailed
from tenuto.sessions.changes import SaveKey, SaveRun, whole
from tenuto.sessions.directory import Directory
from tenuto.sessions.draft import Draft
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import RunRecord, RunStatus
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.storage.store import Store
from tenuto.sessions.tokens import Tokens

HI, HO = UserItem("hi"), AssistantItem("ho")
CALL = AssistantItem("", "", (ToolCall("c", "f", "{}"),))
DAY = 24 * 3600.0


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def directory(store: Store, clock: Clock) -> Directory:
    return Directory(store, ttl_s=60, stored_bytes=12_000, unstored_bytes=12_000, clock=clock)


async def kept(directory: Directory, id: str, *items: Item, **values: Any) -> Session:
    """A session that was made, changed and committed as a run does it."""
    session = await directory.get_or_create("alice", id)
    for name, value in values.items():
        setattr(session, name, value)
    await directory.commit(saving(session, *items))
    return session


def saving(session: Session, *items: Item) -> Draft:
    """The draft of a commit that adds items and writes the session's row."""
    draft = Draft(session)
    draft.save()
    draft.add(items)
    draft.mark_turns(len(session.items))
    return draft


async def test_everybody_gets_the_same_session(directory: Directory) -> None:
    made = await kept(directory, "s", HI)
    assert await directory.get("alice", "s") is made
    assert await directory.get_or_create("alice", "s") is made
    assert await directory.get("bob", "s") is None
    assert await directory.get_or_create("bob", "s") is not made


async def test_a_session_that_is_loaded_twice_at_once_is_one(store: Store, clock: Clock) -> None:
    await kept(Directory(store, clock=clock), "s", HI)
    fresh = Directory(store, clock=clock)
    first, *others = await asyncio.gather(*(fresh.get("alice", "s") for _ in range(8)))
    assert first is not None
    assert first.items == [HI]
    assert all(other is first for other in others)


async def test_a_session_in_use_is_the_same_after_many_others(directory: Directory) -> None:
    held = await kept(directory, "held", HI)
    for number in range(5):
        await kept(directory, f"s{number}")
    assert await directory.get("alice", "held") is held


async def test_idle_sessions_leave_the_memory_and_come_back_from_the_store(directory: Directory) -> None:
    session = await kept(directory, "s", HI, HO)
    before, gone = replace(session), ref(session)
    del session
    for number in range(2):
        await kept(directory, f"s{number}")
    gc.collect()
    assert gone() is None
    assert await directory.get("alice", "s") == before


async def test_a_session_with_an_open_run_stays_in_memory(directory: Directory, clock: Clock) -> None:
    working = ref(await kept(directory, "s", HI, open_run="r"))
    for number in range(5):
        await kept(directory, f"s{number}")
    clock.now += 1000
    await expire(directory)
    gc.collect()
    assert working() is not None


async def test_a_session_in_memory_only_is_never_in_the_store_and_goes_at_its_time(
    directory: Directory, store: Store, clock: Clock
) -> None:
    session = directory.new("alice", stored=False)
    await directory.commit(saving(session, HI))
    id, uid = session.id, session.uid
    del session
    gc.collect()
    assert await store.session_by_uid(uid) is None
    clock.now += 59
    assert await directory.get("alice", id) is not None
    clock.now += 59
    assert await directory.get("alice", id) is not None
    clock.now += 61
    await expire(directory)
    gc.collect()
    assert await directory.get("alice", id) is None


async def unstored(directory: Directory, principal: str, **values: Any) -> Session:
    session = directory.new(principal, stored=False)
    for name, value in values.items():
        setattr(session, name, value)
    await directory.commit(Draft(session))
    return session


async def test_sessions_in_memory_only_make_room_for_new_ones_however_many_come(directory: Directory) -> None:
    ids = [(await unstored(directory, "alice")).id for _ in range(1000)]
    gc.collect()
    assert await directory.get("alice", ids[0]) is None
    assert await directory.get("alice", ids[-1]) is not None


async def test_one_who_makes_many_sessions_in_memory_only_leaves_others_theirs(directory: Directory) -> None:
    kept = (await unstored(directory, "bob")).id
    for _ in range(100):
        await unstored(directory, "alice")
    gc.collect()
    assert await directory.get("bob", kept) is not None


async def test_sessions_in_memory_only_are_refused_where_all_are_at_work(directory: Directory) -> None:
    busy = [await unstored(directory, "alice", open_run="r") for _ in range(2)]
    with pytest.raises(Overloaded) as refused:
        directory.new("alice", stored=False)
    assert refused.value.retry_after_s < 60
    directory.new("alice")
    busy[0].open_run = None
    directory.new("alice", stored=False)


async def test_a_large_session_counts_for_what_it_is(directory: Directory) -> None:
    small = ref(await kept(directory, "small", HI))
    await kept(directory, "large", UserItem("x" * 20_000))
    gc.collect()
    assert small() is None


async def test_a_session_that_was_never_committed_leaves_nothing_behind(directory: Directory) -> None:
    await directory.get_or_create("alice", "s")
    gc.collect()
    assert await directory.get("alice", "s") is None


@pytest.mark.parametrize("id", ["", "a b", "a/b", "ä", "x" * 129, "a\n", ".", ".."])
async def test_an_id_that_cannot_be_is_refused(directory: Directory, id: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await directory.get_or_create("alice", id)
    assert raised.value.param == "session_id"


async def test_an_implicit_session_stays_one_until_somebody_commits_that_it_is_named(
    directory: Directory, store: Store
) -> None:
    session = directory.new("alice", user="u")
    await directory.commit(saving(session))
    assert [one.id for one in await directory.list("alice")] == []
    assert [one.id for one in await directory.list("alice", implicit=True)] == [session.id]
    assert await directory.get_or_create("alice", session.id) is session
    assert session.implicit
    draft = Draft(session)
    draft.save()
    draft.ahead.implicit, draft.ahead.expires_at = False, None
    await directory.commit(draft)
    found = (await directory.list("alice"))[0]
    assert (found.id, found.implicit, found.expires_at, found.user) == (session.id, False, None, "u")


async def test_an_implicit_session_lives_a_day_from_its_last_use(directory: Directory, clock: Clock) -> None:
    session = directory.new("alice")
    await directory.commit(saving(session))
    id, uid = session.id, session.uid
    del session
    clock.now += DAY - 1
    assert await expire(directory) == []
    assert await directory.get("alice", id) is not None
    clock.now += DAY - 1
    assert await expire(directory) == []
    clock.now += 2
    assert await expire(directory) == [uid]
    assert await directory.get("alice", id) is None


async def test_the_id_of_an_expired_session_is_free_again(directory: Directory, clock: Clock) -> None:
    session = directory.new("alice")
    await directory.commit(saving(session))
    clock.now += DAY
    again = await directory.get_or_create("alice", session.id)
    assert again.uid != session.uid
    await directory.commit(saving(again))
    with pytest.raises(NotFound):
        await directory.commit(saving(session))


async def test_a_deleted_session_is_unknown_and_takes_no_more_commits(directory: Directory, store: Store) -> None:
    session = await kept(directory, "s", HI)
    await directory.delete("alice", "s")
    assert await directory.get("alice", "s") is None
    assert await store.session_by_uid(session.uid) is None
    with pytest.raises(NotFound):
        await directory.commit(saving(session))
    with pytest.raises(NotFound):
        await directory.delete("alice", "s")


async def test_a_session_is_as_it_was_where_a_commit_fails(directory: Directory, store: Store) -> None:
    session = await kept(directory, "s", HI)
    before = replace(session, items=list(session.items))
    draft = Draft(session)
    draft.save()
    draft.add([HO])
    draft.grow("f", [(1, 2), (3,)])
    draft.ahead.open_run, draft.ahead.approved = "r", frozenset({"t"})
    with pytest.raises(StoreFailed):
        await directory.commit(draft, SaveKey("alice", "k", "no run", "", 0.0))
    assert session == before
    assert await store.session("alice", "s") == before
    await directory.commit(draft)
    assert (session.items, session.open_run, session.ledgers["f"].tokens[:]) == ([HI, HO], "r", [1, 2, 3])
    assert await store.session("alice", "s") == session


async def test_a_commit_goes_on_when_the_one_who_waits_for_it_is_gone(directory: Directory, store: Store) -> None:
    session = await kept(directory, "s", HI)
    draft = Draft(session)
    draft.add([HO])
    async with anyio.create_task_group() as group:
        group.start_soon(directory.commit, draft)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert session.items == [HI, HO]
    assert await store.session("alice", "s") == session


async def test_nobody_deletes_the_session_of_another(directory: Directory) -> None:
    session = await kept(directory, "s", HI)
    with pytest.raises(NotFound):
        await directory.delete("bob", "s")
    assert await directory.get("alice", "s") is session


async def test_a_fork_is_a_session_of_its_own(directory: Directory, store: Store) -> None:
    ledger = Ledger("f", Tokens([1, 2, 3]), [0, 1])
    tools = (ToolSpec("t", "", {"type": "object"}),)
    origin = await kept(
        directory, "s", HI, HO, HI, ledgers={"f": ledger}, server_tools=tools, approved=frozenset({"t"}), user="u"
    )
    await directory.put_note(origin.uid, "k", "v")
    fork = directory.fork(origin, None, "twin")
    await directory.add(fork)
    assert fork == replace(
        origin,
        uid=fork.uid,
        id="twin",
        items=[HI, HO],
        created_at=fork.created_at,
        updated_at=fork.updated_at,
        parent=Parent(origin.uid, 2),
        approved=frozenset(),
    )
    assert await directory.get("alice", "twin") is fork
    assert await store.session("alice", "twin") == fork
    assert await store.notes(fork.uid) == {"k": "v"}
    fork.ledgers["f"].append([9])
    assert ledger.tokens == [1, 2, 3]


async def fork(directory: Directory, session: Session, at: int | None = None, new_id: str | None = None) -> Session:
    """A fork as the owners of both sessions make it."""
    twin = directory.fork(session, at, new_id)
    await directory.add(twin)
    return twin


async def expire(directory: Directory) -> list[str]:
    """What housekeeping does."""
    await directory.tidy()
    gone = [await directory.expire(*key) for key in await directory.overdue()]
    return [uid for uid in gone if uid is not None]


@pytest.mark.parametrize(
    ("items", "at", "keep"),
    [
        ([HI, HO, HI, HO], 2, 2),
        ([HI, HO, HI, HO], 3, 3),
        ([HI, HO, HI, HO], 0, 0),
        ([HI, HO, HI, CALL], 4, 3),
        ([HI, HO, HI, CALL, ToolResultItem("c", "f", "")], 4, 3),
        ([HI, HO, HI, CALL, ToolResultItem("c", "f", "")], 5, 5),
        ([HI, AssistantItem("par", incomplete=True)], 2, 1),
        ([HI, HO, HI, CALL, ToolResultItem("c", "f", "")], None, 2),
        ([HI, HO, HI, AssistantItem("par", incomplete=True)], None, 2),
        ([SystemItem("s"), HI], None, 0),
    ],
)
async def test_a_fork_takes_completed_items(directory: Directory, items: list[Item], at: int | None, keep: int) -> None:
    origin = await kept(directory, "s", *items)
    twin = await fork(directory, origin, at)
    assert twin.items == items[:keep]
    assert twin.parent == Parent(origin.uid, keep)


async def test_a_fork_is_implicit_where_nobody_named_it_and_its_origin_is(directory: Directory) -> None:
    explicit, implicit = await kept(directory, "s", HI, HO), directory.new("alice")
    await directory.commit(saving(implicit))
    forks = [
        await fork(directory, explicit),
        await fork(directory, implicit),
        await fork(directory, implicit, None, "x"),
    ]
    assert [(one.implicit, one.expires_at is None) for one in forks] == [(False, True), (True, False), (False, True)]


async def test_a_fork_that_cannot_be_is_refused(directory: Directory) -> None:
    origin = await kept(directory, "s", HI, HO)
    for at, new_id, param in ((3, None, "at"), (-1, None, "at"), (1, "a b", "new_id"), (1, "..", "new_id")):
        with pytest.raises(InvalidRequest) as raised:
            await fork(directory, origin, at, new_id)
        assert raised.value.param == param
    with pytest.raises(Conflict):
        await fork(directory, origin, None, "s")


@pytest.mark.parametrize("id", [".", ".."])
async def test_an_old_session_whose_id_no_path_can_hold_still_opens_and_no_import_makes_one(
    directory: Directory, store: Store, id: str
) -> None:
    await store.commit(*whole(Session("u", "alice", id, 1.0, 1.0, items=[HI, HO])))
    assert (await directory.get_or_create("alice", id)).items == [HI, HO]
    with pytest.raises(InvalidRequest):
        await directory.install(Session("v", "alice", id, 1.0, 1.0))


async def test_an_import_replaces_the_session_of_its_id(directory: Directory, store: Store) -> None:
    old = await kept(directory, "s", HI)
    new = replace(old, uid="new", items=[HO], notes={"b": "1", "a": "2"})
    await directory.install(new)
    assert await directory.get("alice", "s") is new
    assert await store.session("alice", "s") == new
    assert list((await store.notes("new")).items()) == [("b", "1"), ("a", "2")]
    with pytest.raises(NotFound):
        await directory.commit(saving(old))


async def test_an_import_waits_for_nobody(directory: Directory) -> None:
    old = await kept(directory, "s", HI, open_run="r")
    with pytest.raises(SessionBusy):
        await directory.install(replace(old, uid="new", open_run=None))
    assert await directory.get("alice", "s") is old


async def test_a_request_goes_on_with_the_one_session_that_fits(directory: Directory) -> None:
    session = directory.new("alice")
    await directory.commit(saving(session, HI, HO))
    assert await directory.match("alice", None, RequestItems([HI, HO, HI])) == (session, 2)
    assert await directory.match("alice", "u", RequestItems([HI, HO, HI])) is None
    assert await directory.match("bob", None, RequestItems([HI, HO, HI])) is None
    assert await directory.match("alice", None, RequestItems([HI])) is None
    twin = await fork(directory, session)
    assert await directory.match("alice", None, RequestItems([HI, HO, HI])) is None
    await directory.commit(saving(twin, HI, AssistantItem("more")))
    assert await directory.match("alice", None, RequestItems([*twin.items, HI])) == (twin, 4)
    assert await directory.match("alice", None, RequestItems([HI, HO, UserItem("other")])) == (session, 2)


async def test_a_session_that_has_gone_further_is_matched_at_the_end_of_a_turn(directory: Directory) -> None:
    session = directory.new("alice")
    await directory.commit(saving(session, HI, HO, UserItem("and?"), AssistantItem("so")))
    for again in (UserItem("other"), UserItem("and?")):
        assert await directory.match("alice", None, RequestItems([HI, HO, again])) == (session, 2)
    assert await directory.match("alice", None, RequestItems([HI, AssistantItem("no"), HI])) is None
    twin = await fork(directory, session, 2)
    await directory.commit(saving(twin, UserItem("or?"), AssistantItem("so")))
    found = await directory.match("alice", None, RequestItems([HI, HO, UserItem("third")]))
    assert found in [(session, 2), (twin, 2)], "they are the same up to there"


async def test_sessions_that_differ_in_what_the_client_never_saw_are_not_one(directory: Directory) -> None:
    for result in ("1", "2"):
        session = directory.new("alice")
        call = AssistantItem("", "", (ToolCall("c", "f", "{}", server=True),))
        await directory.commit(
            saving(session, HI, call, ToolResultItem("c", "f", result, server=True), HO, UserItem(result))
        )
    assert await directory.match("alice", None, RequestItems([HI, HO, UserItem("other")])) is None


async def test_a_branch_is_in_the_store_with_its_first_commit(directory: Directory, store: Store) -> None:
    origin = await kept(directory, "s", HI, HO, UserItem("and?"))
    await directory.put_note(origin.uid, "k", "v")
    branch = directory.fork(origin, 2, implicit=True)
    directory.register(branch)
    assert (branch.items, branch.implicit, branch.parent) == ([HI, HO], True, Parent(origin.uid, 2))
    assert await store.session_by_uid(branch.uid) is None
    await directory.commit(Draft(branch, *whole(branch)))
    assert await store.session_by_uid(branch.uid) == branch
    assert await store.notes(branch.uid) == {"k": "v"}


async def test_call_ids_tell_equal_sessions_apart(directory: Directory) -> None:
    made = []
    for id in "ab":
        session = directory.new("alice")
        await directory.commit(saving(session, HI, AssistantItem("", "", (ToolCall(id, "f", "{}"),))))
        made.append(session)
    for session, id in zip(made, "ab", strict=True):
        assert await directory.match("alice", None, RequestItems([*session.items, ToolResultItem(id, "f", "x")])) == (
            session,
            2,
        )


async def test_a_session_with_an_open_run_does_not_expire(directory: Directory, store: Store, clock: Clock) -> None:
    session = directory.new("alice")
    run = RunRecord("r", session.uid, "alice", "m", RunStatus.PAUSED, 1.0, 1.0, 0, {}, {})
    draft = saving(session)
    draft.ahead.open_run = run.id
    await directory.commit(draft, SaveRun(run))
    clock.now += 2 * DAY
    assert await expire(directory) == []
    assert await directory.get("alice", session.id) is session
