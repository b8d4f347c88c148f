"""Hints of when sequences come back: who gives way for them, what is back before them, what a wrong one does."""

from pathlib import Path

import anyio
import pytest

from tenuto.runtime.engine.counts import Family, Move, families
from tenuto.runtime.engine.messages import Residency
from tests.patience import HANGS_S
from tests.runtime.engine.rig import Make, Rig
from tests.runtime.engine.test_disk_caches import LONG, house, read

FAR_S = 3600.0


async def paused(rig: Rig, *names: str) -> dict[str, int]:
    """Sequences that have answered, and how many tokens each has."""
    lengths = {}
    for name in names:
        round = rig.begin(name, rig.prompt(f"I am {name}, and I am here. "))
        await round.stopped()
        lengths[name] = len(round.seen)
    return lengths


async def place_of(rig: Rig, name: str, length: int) -> Residency:
    """Where a sequence's cache lay when it went on."""
    return (await rig.resume(name, length, rig.result("ok")).stopped()).usage.residency


def moves(rig: Rig) -> dict[str, int]:
    return families(rig.engine.status.counts)[Family.MOVES]


async def test_who_is_expected_last_gives_way(make: Make) -> None:
    rig = make(slots=3)
    lengths = await paused(rig, "a", "b", "c")
    rig.engine.expect("a", 0.5, 0.1)
    rig.engine.expect("b", FAR_S, 1.0)
    rig.engine.expect("c", 1.0, 0.1)
    await paused(rig, "d")
    assert await place_of(rig, "a", lengths["a"]) is Residency.DEVICE
    assert await place_of(rig, "c", lengths["c"]) is Residency.DEVICE
    assert await place_of(rig, "b", lengths["b"]) is Residency.HOST


async def test_a_hint_holds_for_the_pause_that_it_was_given_for(make: Make) -> None:
    rig = make(slots=2)
    lengths = await paused(rig, "a", "b")
    rig.engine.expect("a", FAR_S, 1.0)
    round = rig.resume("a", lengths["a"], rig.result("early"))
    await round.stopped()
    rig.engine.expect("b", FAR_S, 1.0)
    await paused(rig, "c")
    assert await place_of(rig, "a", len(round.seen)) is Residency.DEVICE


async def test_a_result_that_comes_later_or_earlier_than_hinted_changes_no_answer(make: Make) -> None:
    rig = make(slots=1)
    lengths = await paused(rig, "a", "b", "c")
    for name, seconds in (("a", 0.0), ("b", FAR_S), ("c", 0.01)):
        rig.engine.expect(name, seconds, 0.0)
    for name in ("b", "a", "c"):
        new = rig.result(f"{name} is back")
        round = rig.resume(name, lengths[name], new)
        usage = (await round.stopped()).usage
        assert round.tokens == rig.answer(f"{name} is back")
        assert usage.computed == usage.new == len(new) + 1


async def test_hints_for_who_is_unknown_at_work_cancelled_or_gone_say_nothing(make: Make) -> None:
    rig = make(slots=2)
    await paused(rig, "gone")
    rig.engine.release("gone")
    rig.engine.expect("gone", 0.0, 0.0)
    rig.engine.expect("never seen", 0.0, 0.0)
    rig.backend.shut()
    round = rig.begin("s", rig.prompt("Hello!"))
    await rig.backend.stands()
    rig.engine.expect("s", 0.0, 0.0)
    rig.cancel("s")
    rig.backend.open()
    await round.stopped()
    rig.engine.expect("s", FAR_S, 0.0)
    rig.engine.release("s")
    await rig.idle()
    assert set(rig.engine.status.cache_bytes.values()) == {0}


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf")])
async def test_a_hint_that_is_no_time_harms_nobody(make: Make, wrong: float) -> None:
    rig = make(slots=2)
    lengths = await paused(rig, "a", "b")
    rig.engine.expect("a", wrong, 0.0)
    rig.engine.expect("b", 0.0, wrong)
    await paused(rig, "c")
    for name, length in lengths.items():
        new = rig.result("ok")
        usage = (await rig.resume(name, length, new).stopped()).usage
        assert usage.computed == len(new) + 1


async def test_who_is_expected_is_brought_back_to_a_slot_that_is_free(make: Make) -> None:
    rig = make(slots=1)
    lengths = await paused(rig, "a", "b")
    rig.engine.expect("a", 0.0, 0.0)
    await rig.idle()
    assert moves(rig)[Move.HOST_DEVICE] == 0, "the slot is another's"
    rig.engine.release("b")
    with anyio.fail_after(HANGS_S):
        while not moves(rig)[Move.HOST_DEVICE]:
            await rig.idle()
    assert rig.engine.status.cache_bytes[Residency.HOST] == 0
    assert await place_of(rig, "a", lengths["a"]) is Residency.DEVICE


async def test_nobody_is_brought_back_before_the_time(make: Make) -> None:
    rig = make(slots=1)
    await paused(rig, "a", "b")
    rig.engine.expect("a", FAR_S, 0.0)
    rig.engine.release("b")
    await rig.idle()
    assert moves(rig)[Move.HOST_DEVICE] == 0


async def test_a_copy_that_fails_on_its_way_back_is_computed_again(make: Make) -> None:
    rig = make(slots=1)
    lengths = await paused(rig, "a", "b")
    rig.engine.expect("a", 0.0, 0.0)
    await rig.idle()
    rig.backend.broken.add("restore")
    rig.engine.release("b")
    await rig.idle()
    rig.backend.broken.clear()
    assert await place_of(rig, "a", lengths["a"]) is Residency.NONE
    assert rig.engine.is_alive


async def test_a_cache_on_disk_is_back_before_who_is_expected(tmp_path: Path) -> None:
    """Host memory has room for one of two; the other's is read while nobody waits for it."""
    async with house(tmp_path, slots=1) as it:
        tokens = it.prompt(LONG)
        nbytes = 4 * (len(tokens) + 40)
    async with house(tmp_path, slots=1, host=nbytes) as it:
        said, _ = await read(it.begin("s", it.prompt(LONG)))
        await it.written()
        await read(it.begin("other", it.prompt("Other ducks! " + LONG), kept_as=""))  # drives it to host memory
        it.client.expect("s", FAR_S, 0.0)
        it.client.expect("other", 0.0, 0.0)
        await read(it.begin("third", it.prompt("A third one! " + LONG), kept_as=""))
        counted = families(it.client.status.counts)[Family.MOVES]
        assert counted[Move.HOST_DISK] == 1
        it.client.release("other")
        it.client.release("third")
        it.client.expect("s", 0.0, 0.0)
        with anyio.fail_after(HANGS_S):
            while not families(it.client.status.counts)[Family.MOVES][Move.HOST_DEVICE]:  # noqa: ASYNC110
                await anyio.sleep(0.005)
        tokens.extend(said)
        tokens.extend(it.prompt("And the geese?"))
        _, stopped = await read(it.begin("s", tokens))
        assert stopped.usage.residency is Residency.DEVICE
        assert stopped.usage.cached > len(it.prompt(LONG)) - 2
        saved = families(it.client.status.counts)[Family.SAVED_TOKENS]
        assert saved["device"] == stopped.usage.cached
