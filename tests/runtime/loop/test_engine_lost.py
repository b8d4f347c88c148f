"""What the loop does with its rounds when their engine is lost, and what it gives to the next one."""

import asyncio
from collections.abc import Callable

import pytest

from tenuto.pipelines.backend import Sampling
from tenuto.runtime.engine.messages import (
    WINDOW,
    Admitted,
    Command,
    EngineStatus,
    Event,
    Failed,
    Read,
    Report,
    Residency,
    Round,
    RoundUsage,
    State,
    StopCause,
    Stopped,
    Submit,
    TokensSampled,
)
from tenuto.runtime.loop.engine_client import MOST_LOSSES, EngineClient
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.sessions.priority import Priority


class FarEngine:
    """An `EnginePort` of which a test says what it tells, and when it is lost."""

    def __init__(self) -> None:
        self.told: list[Command] = []

    def begin(
        self,
        heard: Callable[[Report], None],
        ended: Callable[[], None],
        lost: Callable[[], None],
        anew: Callable[[], None],
    ) -> None:
        self.heard, self.ended, self.lost, self._anew = heard, ended, lost, anew

    def tell(self, command: Command) -> None:
        self.told.append(command)

    def is_alive(self) -> bool:
        return True

    async def stop(self, timeout_s: float) -> None:
        self.ended()

    def says(self, *events: Event) -> None:
        self.heard(Report(events, EngineStatus()))

    def anew(self) -> None:
        self.told.clear()
        self._anew()

    def ends_under(self, *names: str) -> None:
        """It is at work on these, is lost, and another one begins."""
        self.says(*map(Admitted, names))
        self.lost()
        self.anew()

    @property
    def rounds(self) -> list[str]:
        """What it was told to begin."""
        return [command.sequence for command in self.told if isinstance(command, Submit)]


class House:
    def __init__(self) -> None:
        self.engine = FarEngine()
        self.client = EngineClient("it", 8, self.engine)

    def begin(self, name: str) -> OpenRound:
        return self.client.submit(name, [1, 2, 3], Round(1000, Sampling(), frozenset({0})), principal="alice")


@pytest.fixture
async def house() -> House:
    return House()


async def last(opened: OpenRound) -> Stopped | Failed:
    events = [event async for event in opened]
    assert isinstance(events[-1], Stopped | Failed)
    return events[-1]


async def test_what_an_engine_held_is_not_told_while_it_is_away(house: House) -> None:
    held = {Residency.DEVICE: 100, Residency.HOST: 50, Residency.DISK: 70}
    sequences = {State.DECODING: 2, State.PAUSED: 1}
    house.engine.heard(Report([], EngineStatus(busy=True, steps=3, sequences=sequences, cache_bytes=held)))
    house.engine.lost()
    status = house.client.status
    assert status.cache_bytes == {Residency.DEVICE: 0, Residency.HOST: 0, Residency.DISK: 70}
    assert not status.busy
    assert not any(status.sequences.values())
    assert status.steps == 3
    house.engine.anew()
    assert house.client.status.steps == 3


async def test_the_next_engine_is_told_how_urgent_a_round_is(house: House) -> None:
    round = Round(1000, Sampling(), frozenset({0}))
    house.client.submit("b", [1, 2, 3], round, principal="alice", priority=Priority.BACKGROUND)
    house.engine.says(TokensSampled("b", (7,)))
    house.engine.ends_under("b")
    [command] = house.engine.told
    assert isinstance(command, Submit)
    assert (command.said[0], command.priority) == (7, Priority.BACKGROUND)


async def test_those_that_may_be_what_ends_engines_are_tried_one_after_the_other(house: House) -> None:
    rounds = {name: house.begin(name) for name in ("a", "guilty", "b", "proven")}
    house.engine.says(*map(Admitted, rounds))
    for _ in range(MOST_LOSSES):
        house.engine.says(TokensSampled("proven", (7,)))
        house.engine.ends_under(*rounds)
    assert house.engine.rounds == ["proven", "a"]
    house.engine.says(TokensSampled("proven", (7,)), Admitted("a"), TokensSampled("a", (7,)))
    assert house.engine.rounds == ["proven", "a", "guilty"]
    house.engine.ends_under("proven", "a", "guilty")
    failed = await last(rounds["guilty"])
    assert isinstance(failed, Failed)
    assert "ended 3 times" in failed.error
    assert house.engine.rounds == ["a", "proven", "b"]
    for name in ("a", "b", "proven"):
        house.engine.says(Admitted(name), Stopped(name, StopCause.END, RoundUsage()))
        assert isinstance(await last(rounds[name]), Stopped)
    assert house.client.places == 0


async def test_the_next_is_tried_when_one_ends_or_is_cancelled(house: House) -> None:
    rounds = {name: house.begin(name) for name in "abcd"}
    for _ in range(MOST_LOSSES):
        house.engine.ends_under(*rounds)
    assert house.engine.rounds == ["a"]
    rounds["b"].cancel()
    assert isinstance(await last(rounds["b"]), Stopped)
    house.engine.says(Failed("a", "no", RoundUsage()))
    assert house.engine.rounds == ["a", "c"]
    house.client.release("d")
    house.engine.says(Stopped("c", StopCause.END, RoundUsage()))
    assert house.engine.rounds == ["a", "c"]
    assert house.client.places == 0


async def test_a_round_that_was_never_admitted_has_ended_no_engine(house: House) -> None:
    waits = house.begin("waits")
    for _ in range(3 * MOST_LOSSES):
        house.engine.ends_under()
        assert house.engine.rounds == ["waits"]
    assert waits.losses == 0


async def test_a_cancel_in_between_is_over_at_once_and_its_session_goes_on(house: House) -> None:
    opened = house.begin("s")
    house.engine.says(Admitted("s"), TokensSampled("s", (7, 7)))
    house.engine.lost()
    opened.cancel()
    stopped = await last(opened)
    assert isinstance(stopped, Stopped)
    assert (stopped.cause, stopped.usage.prompt, stopped.usage.sampled) == (StopCause.CANCELLED, 3, 2)
    again, gone = house.begin("s"), house.begin("gone")
    house.client.release("gone")
    assert isinstance(await last(gone), Stopped)
    house.engine.anew()
    assert house.engine.rounds == ["s"]
    assert not again.is_over


async def test_a_round_goes_no_further_ahead_of_its_reader_at_the_next_engine(house: House) -> None:
    opened = house.begin("s")
    house.engine.says(Admitted("s"), TokensSampled("s", (7,) * WINDOW))
    await anext(opened)
    house.engine.says(TokensSampled("s", (7,) * 100))
    house.engine.ends_under()
    [command] = house.engine.told
    assert isinstance(command, Submit)
    assert (len(command.said), command.unread) == (WINDOW + 100, 100)
    await anext(opened)
    house.engine.says(TokensSampled("s", (7,) * (WINDOW // 2)))
    await anext(opened)
    assert [one.tokens for one in house.engine.told if isinstance(one, Read)] == [100 + WINDOW // 2]


async def test_an_engine_that_does_not_wait_for_a_reader_fails_the_round(house: House) -> None:
    opened, other = house.begin("s"), house.begin("other")
    for _ in range(10):
        house.engine.says(TokensSampled("s", (7,) * WINDOW))
    failed = await last(opened)
    assert isinstance(failed, Failed)
    assert failed.usage.sampled <= 3 * WINDOW
    assert not other.is_over


async def test_while_it_is_away_it_does_not_hang(house: House) -> None:
    house.begin("s")
    await asyncio.sleep(0.001)
    assert house.client.health.silent_s
    house.engine.lost()
    assert house.client.health.silent_s == 0
    house.engine.anew()
    await asyncio.sleep(0.001)
    assert house.client.health.silent_s
