"""What becomes of sequences when there are more of them than slots, told by their answers and their cost."""

import weakref
from pathlib import Path

import numpy as np
import pytest

from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.messages import Residency
from tests.runtime.engine.rig import Make


async def test_a_sequence_that_was_moved_out_and_back_computes_only_what_is_new(make: Make) -> None:
    rig = make(slots=2)
    lengths = {}
    for number in range(5):
        prompt = rig.prompt(f"{number} is my number. " * 5)
        round = rig.begin(f"s{number}", prompt, max_tokens=4)
        await round.stopped()
        lengths[number] = len(prompt) + 4
    places = set()
    for turn in range(3):
        for number in range(5):
            new = rig.result(f"{number} in {turn}")
            round = rig.resume(f"s{number}", lengths[number], new)
            usage = (await round.stopped()).usage
            assert round.tokens == rig.answer(f"{number} in {turn}")
            assert usage.computed == usage.new == len(new) + 1
            assert usage.miss_reason is None
            places.add(usage.residency)
            lengths[number] += len(new) + len(round.tokens)
    assert Residency.HOST in places
    assert places <= {Residency.HOST, Residency.DEVICE}


async def test_the_one_that_stopped_longest_ago_gives_way(make: Make) -> None:
    rig = make(slots=2, host=0)
    texts = {"long": "I began first and stop last.", "short": "Hi!"}
    rounds = {name: rig.begin(name, rig.prompt(text)) for name, text in texts.items()}
    for round in rounds.values():
        await round.stopped()
    await rig.begin("third", rig.prompt("And me?")).stopped()
    for name, residency in (("long", Residency.DEVICE), ("short", Residency.NONE)):
        length = len(rig.prompt(texts[name])) + len(rounds[name].tokens)
        stopped = await rig.resume(name, length, rig.result("ok")).stopped()
        assert stopped.usage.residency is residency


async def test_what_was_dropped_is_computed_again_and_is_not_new(make: Make) -> None:
    rig = make(slots=1, host=0)
    prompt = rig.prompt("one " * 10)
    first = rig.begin("s", prompt)
    await first.stopped()
    await rig.begin("other", rig.prompt("Hello!")).stopped()
    new = rig.result("back")
    round = rig.resume("s", len(prompt) + len(first.tokens), new)
    usage = (await round.stopped()).usage
    assert round.tokens == rig.answer("back")
    assert (usage.cached, usage.computed, usage.new) == (0, usage.prompt, len(new) + 1)
    assert (usage.residency, usage.miss_reason) == (Residency.NONE, "not_resident")


async def test_a_sequence_that_gave_way_while_it_waited_keeps_its_cache(make: Make) -> None:
    rig = make(slots=1)
    prompt = rig.prompt("Hello!")
    first = rig.begin("s", prompt)
    await first.stopped()
    rig.backend.shut()
    busy = rig.begin("busy", rig.prompt("I hold the slot."), max_tokens=3)
    await rig.backend.stands()
    stranger = rig.begin("stranger", rig.prompt("I came first."))
    new = rig.result("back")
    round = rig.resume("s", len(prompt) + len(first.tokens), new)
    rig.backend.open()
    for each in (busy, stranger, round):
        await each.stopped()
    assert stranger.tokens == rig.answer("I came first.")
    assert round.tokens == rig.answer("back")
    assert round.end is not None
    assert round.end.usage.computed == round.end.usage.new == len(new) + 1


async def test_a_prompt_takes_over_the_prefix_of_the_one_that_gives_way(make: Make) -> None:
    rig = make(slots=1, host=0)
    system = "The same beginning for everybody. "
    await rig.begin("first", rig.prompt(system + "One?")).stopped()
    round = rig.begin("second", rig.prompt(system + "Two?"))
    usage = (await round.stopped()).usage
    assert round.tokens == rig.answer(system + "Two?")
    assert usage.cached >= len(system)


@pytest.mark.parametrize("can_truncate", [True, False])
@pytest.mark.parametrize("host", [0, 300, 1 << 20])
async def test_answers_are_right_however_little_room_there_is(make: Make, host: int, can_truncate: bool) -> None:
    rig = make(slots=2, host=host, can_truncate=can_truncate, batch_tokens=32)
    tokens = {f"s{number}": rig.prompt(f"Hello {number}! The same beginning. ") for number in range(6)}
    for turn in range(4):
        rounds = {name: rig.begin(name, tokens[name]) for name in tokens}
        for name, round in rounds.items():
            await round.stopped()
            if turn:
                assert round.tokens == rig.answer(f"{name} in turn {turn}")
            tokens[name] = [*tokens[name], *round.tokens, *rig.result(f"{name} in turn {turn + 1}")]
        assert rig.engine.status.cache_bytes[Residency.HOST] <= host


async def test_the_bytes_that_are_really_held_keep_within_the_budget(make: Make, tmp_path: Path) -> None:
    """Not the accountant's word for it: what is alive, in the moment in which most is."""
    budget = 3000
    rig = make(slots=2, host=budget)
    alive: dict[int, int] = {}
    peak = 0
    copy_out = rig.backend.snapshot

    def counted(slot: int) -> Snapshot:
        nonlocal peak
        snapshot = copy_out(slot)
        data: np.ndarray[tuple[int], np.dtype[np.uint8]] = snapshot.data.copy()
        alive[id(data)] = data.nbytes
        weakref.finalize(data, alive.pop, id(data))
        peak = max(peak, sum(alive.values()))
        return Snapshot(snapshot.tokens, snapshot.nbytes, data)

    rig.backend.snapshot = counted  # type: ignore[method-assign]  # counts, and does what it did
    prompts = {f"s{number}": rig.prompt(f"{number} is my number. " * 6) for number in range(6)}
    for _ in range(3):
        for name, prompt in prompts.items():
            round = rig.begin(name, prompt, max_tokens=3)
            await round.stopped()
            prompts[name] = [*prompt, *round.tokens]
    assert budget / 2 < peak <= budget
