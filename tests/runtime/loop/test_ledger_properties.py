"""The ledger is the truth: for every course of a conversation it has exactly the tokens that the engine was fed.

What the engine was fed is read from its one slot, which belongs to the session that was served last.
"""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import ContextTooLong, SessionPaused
from tenuto.runtime.loop.events import Answer, RoundEnded, RunDone, TextAdded
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.ledgers import fingerprint
from tenuto.runtime.loop.requests import ToolSelection
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolResultItem, UserItem
from tenuto.sessions.records import RunStatus
from tenuto.sessions.session import Session
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import (
    ALICE,
    Clock,
    Process,
    Rule,
    Setup,
    answer,
    asks,
    call,
    client_tools,
    codec,
    events,
    history,
    says,
)
from tests.runtime.loop.tools import Tools

RULES: list[Rule] = [
    asks("count", call("count__add", by=1), text="Well."),
    asks("read", call("big__read", size=30_000), reasoning="Long."),
    asks("weather", call("weather", city="Oslo"), call("count__peek"), reasoning="Hm."),
    says("think", "So it is.", reasoning="Let me think."),
    says("long", "y" * 400, delay_ms=0.2),
    {"tool_contains": "00000", "text": "Read."},
]
TOOLS = (
    client_tools(servers={"count": None, "big": None}),
    client_tools(),
    ToolSelection(given=True, servers={"count": None, "big": None, "calculator": None}),
)

words = st.sampled_from(["hi", "count", "read", "weather", "think", "<|end|> näïve 🎵", ""])
asking = st.fixed_dictionaries(
    {"tools": st.sampled_from(TOOLS)},
    optional={"max_tokens": st.integers(1, 90), "stop": st.sampled_from([("it",), ("e", "l")])},
)
steps = st.one_of(
    st.tuples(st.just("say"), words, asking),
    st.tuples(st.just("cut"), st.integers(0, 8), asking),
    st.tuples(st.just("fork"), st.integers(0, 12), asking),
    st.tuples(st.just("cancel"), st.integers(0, 3), asking),
    st.tuples(st.just("answer"), st.integers(0, 2), asking),
    st.tuples(st.just("kill"), st.just(0), asking),
    st.tuples(st.just("bring"), words, asking),
    st.tuples(st.just("take away"), st.integers(0, 8), asking),
    st.tuples(st.just("instruct"), words, asking),
)


class Conversation:
    """A client that does one step after the other, with what must hold after each."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.id = "s"
        self.paused: Answer | None = None
        self.ledger = ""

    async def step(self, kind: str, value: int | str, fields: dict[str, object]) -> None:
        session = await self.process.directory.get("alice", self.id)
        items = [] if session is None else list(session.items)
        match kind, value:
            case "say", str():
                await self._ask([UserItem(value)], fields)
            case "cut", int():
                await self._ask([*history(items)[:value], UserItem("other")], {**fields, "mode": "replace"})
            case "fork", int() if session is not None:
                await self._fork(session, min(value, len(items)))
            case "cancel", int():
                run = await self._start([UserItem("long")], fields)
                if run is None:
                    return
                async for number, event in run.events():
                    if isinstance(event, TextAdded) and number > value:
                        break
                await self.process.cancel(run)
                await self._check(await answer(run))
            case "bring", str() if session is not None:
                with suppress(SessionPaused):
                    await self.process.runner.add_items(ALICE, self.id, [UserItem(value)])
                await self.process.session(self.id)
            case "take away", int() if session is not None:
                await self._take_away(value)
            case "instruct", str() if session is not None:
                instructed = {"is_appended": True, "is_instructed": bool(value)}
                items = [*([SystemItem(value)] if value else []), UserItem("hi")]
                await self._ask(items, {**fields, **instructed})
            case "kill", _:
                await self._kill()
            case "answer", int() if self.paused is not None:
                outstanding = (
                    [one for one in items[-1].calls if not one.server] if isinstance(items[-1], AssistantItem) else []
                )
                results: list[Item] = [ToolResultItem(one.id, "", "x" * value * 4_000) for one in outstanding]
                await self._ask(results, fields)

    async def _take_away(self, place: int) -> None:
        runner = self.process.runner
        page = await runner.parts(ALICE, self.id, None, 100, newest_first=True)
        if place < len(page.parts):
            with suppress(SessionPaused):
                await runner.remove_part(ALICE, self.id, page.parts[place].name)
                left = await runner.parts(ALICE, self.id, None, 100, newest_first=True)
                names = [one.name for one in page.parts]
                assert {one.name for one in left.parts} < set(names), "the others keep their names"
        await self.process.session(self.id)

    async def _ask(self, items: list[Item], fields: dict[str, object]) -> None:
        run = await self._start(items, fields)
        if run is not None:
            await self._check(await answer(run))

    async def _start(self, items: list[Item], fields: dict[str, object]) -> Follower | None:
        """Begin a run. One that is refused changes nothing: the same words again, or more than the context takes."""
        before = await self.process.directory.get("alice", self.id)
        copy = (
            None if before is None else ([*before.items], {k: v.copy(99) for k, v in before.ledgers.items() if v.items})
        )
        try:
            run = await self.process.start(items, self.id, **fields)
            self.ledger = fingerprint(codec(), run.run.options.tools)  # a run that has ended forgets its tools
            return run
        except (SessionPaused, ContextTooLong):
            if copy is not None:
                session = await self.process.session(self.id)
                assert ([*session.items], {k: v for k, v in session.ledgers.items() if v.items}) == copy
            return None

    async def _kill(self) -> None:
        """kill -9, and another process on what it leaves."""
        killed = self.process
        self.process = await Process(killed.left_behind(self.folder), killed.setup, Clock(), Tools()).begin()
        await killed.stop()

    async def _fork(self, session: Session, at: int) -> None:
        self.id += "x"
        fork = await self.process.runner.fork_session(ALICE, session.id, at, self.id)
        assert fork.items == session.items[: len(fork.items)]
        for name, ledger in fork.ledgers.items():
            assert ledger == session.ledgers[name].copy(len(fork.items))
        await self.process.session(self.id)
        self.paused = None

    async def _check(self, done: Answer) -> None:
        assert done.status is not RunStatus.FAILED, done.error
        self.paused = done if done.status is RunStatus.PAUSED else None
        session = await self.process.session(self.id)  # memory and store are the same
        assert (session.open_run is None) == (self.paused is None)
        for ledger in session.ledgers.values():
            assert ledger.items <= len(session.items)
            assert ledger.offsets[:1] in ([], [0])
            assert all(one < other for one, other in pairwise([*ledger.offsets, len(ledger.tokens)]))
            for item, index in zip(session.items, range(ledger.items), strict=False):
                assert says_it(item, codec().detokenize(ledger.span(index)))
        ledger = session.ledgers[self.ledger]
        fed = slot(self.process)
        if done.run_usage.rounds and done.run_usage.rounds[-1].sampled:
            assert fed == ledger.tokens[:-1], "all but the last token, which nobody has fed yet"
            sampled = sum(one.sampled for one in done.run_usage.rounds)
            assert done.run_usage.prompt + sampled == len(ledger.tokens)
        else:
            assert fed[: len(ledger.tokens)] == ledger.tokens[: len(fed)]


def says_it(item: Item, written: str) -> bool:
    """Whether an item's tokens are about the item. A model's text may have calls in it, which a cut turn does not."""
    match item:
        case AssistantItem():
            rest = iter(written)
            return "<|assistant|>" in written and all(character in rest for character in item.text)
        case ToolResultItem():
            return item.model_text in written
    return item.text in written


def slot(process: Process) -> list[int]:
    """The tokens in the one slot. The engine is idle."""
    held = process.backends["scripted"].snapshot(0)
    tokens: list[int] = np.frombuffer(held.data, np.int32).tolist()
    return tokens


@settings(max_examples=30, deadline=None)
@given(st.lists(steps, min_size=1, max_size=8))
def test_the_ledger_has_what_the_engine_was_fed_and_the_store_what_is_in_memory(
    empty_database: Path, course: list[tuple[str, int | str, dict[str, object]]]
) -> None:
    async def scenario(folder: Path) -> None:
        path = folder / "sessions.db"
        shutil.copyfile(empty_database, path)
        setup = Setup(RULES, script={"slots": 1, "cells": 8192}, servers=("calculator", "count", "big"))
        process = await Process(f"sqlite:///{path}", setup, Clock(), Tools()).begin()
        conversation = Conversation(process, folder)
        try:
            for kind, value, fields in course:
                await asyncio.wait_for(conversation.step(kind, value, fields), 10)
        finally:
            await conversation.process.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


async def test_over_twenty_tool_calls_only_what_is_new_is_computed(open_process: Open) -> None:
    """R1: computed / new <= 1.02 over a session of 20 tool calls."""
    process = await open_process(
        asks("count", call("count__add", by=1), text="Well.", reasoning="Let me think."),
        asks("both", call("count__add", by=1), call("calculator__evaluate", expression="6*7")),
    )
    calls, rounds = 0, []
    while calls < 20:
        for said in ("count", "both", "hi"):
            done = await process.ask(said)
            rounds += done.usage.rounds
            calls += len(done.server_calls)
    assert sum(one.computed for one in rounds) / sum(one.new for one in rounds) <= 1.02
    assert all(one.computed == one.new for one in rounds[1:])
    assert all(one.miss_reason is None for one in rounds)


async def test_a_client_that_repeats_its_history_pays_for_what_is_new_alone(open_process: Open) -> None:
    process = await open_process(asks("count", call("count__add", by=1), text="Well.", reasoning="Let me think."))
    rounds = []
    told: list[Item] = []
    for _ in range(10):
        told.append(UserItem("count"))
        done = await process.ask(told, None)
        told.append(AssistantItem(done.text))
        rounds += done.usage.rounds
    assert len(rounds) == 20
    assert all(one.computed == one.new for one in rounds[1:])


async def test_a_forks_first_round_computes_at_most_one_token_more_than_is_new(open_process: Open) -> None:
    process = await open_process(RULES[0])
    for said in ("count", "hi", "count"):
        await process.ask(said)
    for at in (None, 4, 6):
        await process.runner.fork_session(ALICE, "s", at, f"fork{at}")
        first = (await process.ask("go on", f"fork{at}")).usage.rounds[0]
        assert first.computed <= first.new + 1
        assert first.new < 40


async def test_after_a_restart_what_is_computed_again_is_not_new(open_process: Open) -> None:
    process = await open_process(RULES[0])
    await process.ask("count")
    done = await process.ask("hi")
    later = await open_process(RULES[0], left=process.url)
    again = (await later.ask("and?")).usage.rounds[0]
    assert again.computed == again.prompt
    assert again.new == again.prompt - (done.usage.prompt + done.usage.completion - 1)
    assert (again.miss_reason, again.cached) == ("not_resident", 0)
    told = await events(await later.runner.run(ALICE, done.run_id))
    assert [type(one) for one in told] == [TextAdded, RoundEnded, RunDone]
