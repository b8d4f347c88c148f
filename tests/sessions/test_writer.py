"""The thread that writes, and how commits share a transaction."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Overloaded, StoreFailed
from tenuto.sessions.storage.writer import Writer
from tenuto.sessions.storage.writes import Write, merged
from tests.patience import HANGS_S

WAIT_S = HANGS_S


@dataclass
class Gate:
    """A database that waits in every transaction until it is let go, and refuses the word `bad`."""

    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    tried: list[list[str]] = field(default_factory=list)

    def write(self, commits: Sequence[Sequence[Write]]) -> None:
        words = [write.statement for commit in commits for write in commit]
        self.tried.append(words)
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_S)
        if "bad" in words:
            raise ValueError("bad")

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=WAIT_S)

    def open(self) -> None:
        self.go.release(1000)


def word(name: str) -> list[Write]:
    return [Write(name, [{}], None)]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def writer(gate: Gate) -> Iterator[Writer]:
    opened = Writer(gate.write, queue_limit=4)
    yield opened
    gate.open()
    opened.close()


async def blocked(writer: Writer, gate: Gate, *names: str) -> list[asyncio.Future[None]]:
    """A first commit that is in its transaction, and those that wait behind it."""
    first = asyncio.ensure_future(writer.commit(word("first")))
    await asyncio.sleep(0)
    await gate.until_begun()
    waiting = [asyncio.ensure_future(writer.commit(word(name))) for name in names]
    await asyncio.sleep(0)
    return [first, *waiting]


async def test_commits_that_wait_share_the_next_transaction(writer: Writer, gate: Gate) -> None:
    waiting = await blocked(writer, gate, "a", "b", "c")
    gate.open()
    await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
    assert gate.tried == [["first"], ["a", "b", "c"]]


async def test_a_group_that_fails_is_tried_one_by_one(writer: Writer, gate: Gate) -> None:
    waiting = await blocked(writer, gate, "a", "bad", "c")
    gate.open()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_S)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), StoreFailed, type(None)]
    assert gate.tried == [["first"], ["a", "bad", "c"], ["a"], ["bad"], ["c"]]


async def test_a_full_queue_refuses_at_once_and_keeps_what_is_in_it(writer: Writer, gate: Gate) -> None:
    waiting = await blocked(writer, gate, "a", "b", "c", "d")
    with pytest.raises(Overloaded):
        await writer.commit(word("e"))
    gate.open()
    await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
    assert gate.tried[-1] == ["a", "b", "c", "d"]


async def test_a_wait_that_is_cancelled_takes_nothing_back(writer: Writer, gate: Gate) -> None:
    waiting = await blocked(writer, gate, "a", "b")
    waiting[1].cancel()
    gate.open()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_S)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert gate.tried == [["first"], ["a", "b"]]


async def test_commits_that_wait_are_written_when_the_writer_is_closed(writer: Writer, gate: Gate) -> None:
    waiting = await blocked(writer, gate, "a", "b", "c", "d")
    gate.open()
    await asyncio.to_thread(writer.close)
    assert await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S) == [None] * 5
    with pytest.raises(StoreFailed):
        await writer.commit(word("late"))


def test_nobody_who_waits_for_a_commit_on_an_ended_loop_stops_the_writer(gate: Gate) -> None:
    writer = Writer(gate.write)

    async def leave() -> None:
        waiting = await blocked(writer, gate)
        waiting[0].cancel()

    async def stay() -> None:
        await asyncio.wait_for(writer.commit(word("stay")), WAIT_S)

    asyncio.run(leave())
    gate.open()
    asyncio.run(stay())
    assert gate.tried[-1] == ["stay"]
    writer.close()


scoped = st.builds(
    lambda name, scope: Write(name, [{}], scope), st.sampled_from("abc"), st.sampled_from(["x", "y", "z", None])
)


@given(st.lists(st.lists(scoped, max_size=4), max_size=6))
def test_merging_keeps_the_order_of_each_scope_and_of_what_has_none(commits: list[list[Write]]) -> None:
    number = 0
    before: dict[str, list[int]] = defaultdict(list)
    barriers: list[int] = []
    for commit in commits:
        for write in commit:
            write.rows = [{"number": number, "scope": write.scope, "statement": write.statement}]
            if write.scope is None:
                barriers.append(number)
            else:
                before[write.scope].append(number)
            number += 1
    done = merged(commits)
    rows = [row for write in done for row in write.rows]
    assert sorted(row["number"] for row in rows) == list(range(number))
    assert all(row["statement"] == write.statement for write in done for row in write.rows)
    for scope, numbers in before.items():
        assert [row["number"] for row in rows if row["scope"] == scope] == numbers
    for barrier in barriers:
        assert sorted(row["number"] for row in rows[: barrier + 1]) == list(range(barrier + 1))
        assert rows[barrier]["number"] == barrier


def test_commits_of_one_form_need_one_statement_each() -> None:
    commits = [[Write(name, [{}], str(scope)) for name in "abc"] for scope in range(50)]
    assert [(write.statement, len(write.rows)) for write in merged(commits)] == [("a", 50), ("b", 50), ("c", 50)]
