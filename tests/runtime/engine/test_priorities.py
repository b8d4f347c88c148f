"""Interactive rounds come first, and those in the background come to their end all the same."""

import pytest

from tenuto.runtime.engine.messages import Residency, State
from tenuto.runtime.engine.scheduler import EVERY, QUANTUM
from tenuto.sessions.priority import Priority
from tests.runtime.engine.rig import Make, Reading, Rig, round_of

LONG = "0123456789" * 20
BACKGROUND = Priority.BACKGROUND


def in_background(rig: Rig, sequence: str, text: str) -> Reading:
    prompt = rig.prompt(text)
    stream = rig.engine.submit(
        sequence, prompt, round_of(), principal="alice", whole=lambda: prompt, priority=BACKGROUND
    )
    return rig.read(stream)


async def test_an_interactive_round_passes_those_that_wait_in_the_background(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    first = rig.begin("first", rig.prompt("Hello!"))
    await rig.backend.let()
    waiting = [in_background(rig, f"b{number}", "Later") for number in range(3)]
    urgent = rig.begin("urgent", rig.prompt("Now"))
    while not urgent.tokens:
        await rig.backend.let()
    assert first.end is not None
    assert not any(round.tokens for round in waiting)
    rig.backend.open()
    for round in (first, urgent, *waiting):
        await round.stopped()


@pytest.mark.parametrize("host", [1 << 20, 0], ids=["kept", "computed again"])
async def test_a_round_in_the_background_gives_up_its_slot_and_says_the_same_in_the_end(make: Make, host: int) -> None:
    rig = make(slots=1, host=host)
    rig.backend.shut()
    background = in_background(rig, "b", LONG)
    while len(background.tokens) < QUANTUM:
        await rig.backend.let()
    urgent = rig.begin("urgent", rig.prompt("Now"))
    await rig.backend.let(2)
    assert rig.count(State.WAITING) == 1
    assert rig.engine.status.interrupted == 1
    rig.backend.open()
    await urgent.stopped()
    assert urgent.tokens == rig.answer("Now")
    stopped = await background.stopped()
    assert background.tokens == rig.answer(LONG)
    assert stopped.usage.sampled == len(background.tokens)


async def test_it_keeps_its_slot_until_it_has_said_something_with_it(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    background = in_background(rig, "b", LONG)
    while not background.tokens:
        await rig.backend.let()
    urgent = rig.begin("urgent", rig.prompt("Now"))
    while not urgent.tokens:
        await rig.backend.let()
    assert QUANTUM <= len(background.tokens) <= QUANTUM + 2
    rig.backend.open()
    for round in (background, urgent):
        await round.stopped()


async def test_an_interactive_round_does_not_give_its_slot_to_another(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    first = rig.begin("first", rig.prompt(LONG))
    while len(first.tokens) < QUANTUM:
        await rig.backend.let()
    second = rig.begin("second", rig.prompt("Now"))
    await rig.backend.let(5)
    assert not second.tokens
    rig.backend.open()
    for round in (first, second):
        await round.stopped()
    assert rig.engine.status.interrupted == 0


async def test_a_flood_of_interactive_rounds_does_not_keep_the_background_from_its_end(make: Make) -> None:
    rig = make(slots=1, queue=100)
    rig.backend.shut()
    flood = [rig.begin(f"i{number}", rig.prompt("Now")) for number in range(4)]
    background = in_background(rig, "b", LONG)
    came = len(flood)
    while background.end is None and came < 40 * EVERY:
        while sum(round.end is None for round in flood) < 4:
            flood.append(rig.begin(f"i{came}", rig.prompt("Now")))
            came += 1
        await rig.backend.let()
    assert background.tokens == rig.answer(LONG), "although somebody interactive waited all the time"
    assert rig.engine.status.interrupted
    rig.backend.open()
    for round in flood:
        await round.stopped()


async def test_one_that_was_interrupted_can_be_cancelled(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    background = in_background(rig, "b", LONG)
    while len(background.tokens) < QUANTUM:
        await rig.backend.let()
    urgent = rig.begin("urgent", rig.prompt(LONG))
    while not urgent.tokens:
        await rig.backend.let()
    rig.cancel("b")
    await rig.backend.let()
    stopped = await background.stopped()
    assert stopped.cause == "cancelled"
    assert background.tokens == rig.answer(LONG)[: len(background.tokens)]
    rig.backend.open()
    await urgent.stopped()
    rig.engine.release("b")


async def test_an_interrupted_rounds_cache_is_kept_in_host_memory(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    background = in_background(rig, "b", LONG)
    while len(background.tokens) < QUANTUM:
        await rig.backend.let()
    urgent = rig.begin("urgent", rig.prompt("Now"))
    while not urgent.tokens:
        await rig.backend.let()
    assert rig.engine.status.cache_bytes[Residency.HOST] > 0
    rig.backend.open()
    for round in (background, urgent):
        await round.stopped()


async def test_several_short_prompts_share_one_step(make: Make) -> None:
    rig = make(slots=4, batch_tokens=512)
    rig.backend.shut()
    first = rig.begin("a", rig.prompt("one"))
    await rig.backend.stands()
    others = [rig.begin(name, rig.prompt("one")) for name in "bcd"]
    await rig.backend.let(2)
    fed = [len(row.tokens) for row in rig.backend.steps[1]]
    assert sorted(fed)[0] == 1
    assert sum(length > 1 for length in fed) == 3, "all three are read in one step, beside the one that decodes"
    rig.backend.open()
    for round in (first, *others):
        await round.stopped()
