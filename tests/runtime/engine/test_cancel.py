"""Cancel, release and stop: at most the step under way goes on, and what was held is free."""

import pytest

from tenuto.errors import ShuttingDown
from tenuto.runtime.engine.messages import Residency, State, StopCause
from tests.runtime.engine.rig import Make, Rig, assert_nothing_is_left, round_of

LONG = "a long text, " * 12


async def test_a_round_that_waits_is_cancelled_before_the_next_step(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.shut()
    first = rig.begin("first", rig.prompt("one"))
    second = rig.begin("second", rig.prompt("two"))
    await rig.backend.let(2)
    assert rig.count(State.WAITING) == 1
    rig.cancel("second")
    await rig.backend.let(1)
    stopped = await second.stopped()  # though the first has not gone on
    assert (stopped.cause, stopped.usage.sampled, stopped.usage.computed) == (StopCause.CANCELLED, 0, 0)
    assert second.tokens == []
    rig.backend.open()
    await first.stopped()
    assert first.tokens == rig.answer("one")
    assert {row.slot for step in rig.backend.steps for row in step} == {0}


async def test_a_prefill_is_cancelled_within_a_step_and_keeps_what_it_computed(make: Make) -> None:
    rig = make(batch_tokens=8)
    prompt = rig.prompt(LONG)
    rig.backend.shut()
    round = rig.begin("s", prompt)
    await rig.backend.let(3)
    assert (rig.engine.status.steps, rig.count(State.PREFILLING)) == (3, 1)
    rig.cancel("s")
    await rig.backend.let_last()
    stopped = await round.stopped()
    assert (stopped.cause, stopped.usage.computed) == (StopCause.CANCELLED, 32)
    assert rig.engine.status.steps == 4
    assert (rig.count(State.PREFILLING), rig.count(State.PAUSED)) == (0, 1)
    assert not any(sampler.is_open for sampler in rig.backend.samplers)
    rig.backend.open()
    again = rig.resume("s", len(prompt), [])
    usage = (await again.stopped()).usage
    assert usage.computed == usage.new == len(prompt) - 32
    assert again.tokens == rig.answer(LONG)


async def test_a_decoding_round_is_cancelled_within_a_step_and_goes_on_later(make: Make) -> None:
    rig = make()
    prompt = rig.prompt(LONG)
    rig.backend.shut()
    round = rig.begin("s", prompt)
    await rig.backend.let(10)
    rig.cancel("s")
    await rig.backend.let_last()
    stopped = await round.stopped()
    assert (stopped.cause, stopped.usage.sampled, rig.engine.status.steps) == (StopCause.CANCELLED, 11, 11)
    rig.backend.open()
    again = rig.resume("s", len(prompt) + 11, [])
    usage = (await again.stopped()).usage
    assert usage.computed == usage.new == 1
    assert round.tokens + again.tokens == rig.answer(LONG)


async def test_a_cancel_of_what_has_no_open_round_does_nothing(make: Make) -> None:
    rig = make()
    rig.cancel("nobody")
    prompt = rig.prompt("Hello!")
    round = rig.begin("s", prompt)
    await round.stopped()
    rig.cancel("s")
    await rig.idle()
    assert rig.engine.holds("s", len(prompt) + len(round.tokens))
    assert rig.count(State.PAUSED) == 1


async def test_a_cancel_that_comes_too_late_does_not_stop_the_next_round(make: Make) -> None:
    rig = make()
    prompt = rig.prompt("Hello!")
    round = rig.begin("s", prompt)
    await round.stopped()
    rig.cancel("s")
    new = rig.result("done")
    again = rig.resume("s", len(prompt) + len(round.tokens), new)
    assert (await again.stopped()).cause is StopCause.END


@pytest.mark.parametrize("steps", [0, 2, 30])
async def test_a_release_ends_the_round_and_frees_all(make: Make, steps: int) -> None:
    rig = make(batch_tokens=8)
    rig.backend.shut()
    round = rig.begin("s", rig.prompt(LONG))
    await rig.backend.let(steps)
    await rig.backend.stands()
    rig.engine.release("s")
    assert not rig.engine.holds("s", len(rig.prompt(LONG)))
    await rig.backend.let_last()
    assert (await round.stopped()).cause is StopCause.CANCELLED
    assert_nothing_is_left(rig)
    assert rig.backend.held(0) == []
    assert not rig.engine.holds("s", len(rig.prompt(LONG)) + len(round.tokens))


async def test_a_released_sequence_can_be_begun_again_at_once(make: Make) -> None:
    rig = make()
    await rig.begin("s", rig.prompt("one")).stopped()
    rig.engine.release("s")
    usage = (await rig.begin("s", rig.prompt("one")).stopped()).usage
    assert usage.computed == usage.new == len(rig.prompt("one"))


async def test_a_released_sequence_leaves_host_memory_too(make: Make) -> None:
    rig = make(slots=1)
    await rig.begin("s", rig.prompt("one")).stopped()
    await rig.begin("t", rig.prompt("two")).stopped()
    assert rig.engine.status.cache_bytes[Residency.HOST] > 0
    rig.engine.release("s")
    rig.engine.release("nobody")
    await rig.idle()
    state = rig.engine.status
    assert (state.cache_bytes[Residency.HOST], state.sequences[State.PAUSED]) == (0, 1)
    assert state.cache_bytes[Residency.DEVICE] > 0
    rig.engine.release("t")
    await rig.idle()
    assert_nothing_is_left(rig)


async def test_a_stop_under_load_ends_every_stream(make: Make) -> None:
    rig = make(slots=4, batch_tokens=16)
    await rig.begin("paused", rig.prompt("Hello!")).stopped()
    rig.backend.shut()
    rounds = [rig.begin(f"s{number}", rig.prompt(LONG)) for number in range(3)]
    await rig.backend.let(40)
    rounds += [rig.begin(f"late{number}", rig.prompt(LONG)) for number in range(6)]
    await rig.backend.let(1)
    state = rig.engine.status
    assert min(state.sequences[each] for each in (State.WAITING, State.PREFILLING, State.DECODING, State.PAUSED)) > 0
    rig.backend.open()
    await stop_and_check(rig)
    for round in rounds:
        assert (await round.stopped()).cause is StopCause.CANCELLED
    assert_nothing_is_left(rig)


async def test_rounds_that_the_thread_never_saw_end_with_the_engine_too(make: Make) -> None:
    rig = make()
    rounds = [rig.begin(f"s{number}", rig.prompt("Hello!")) for number in range(3)]
    await rig.engine.stop()
    for round in rounds:
        assert (await round.stopped()).cause in (StopCause.CANCELLED, StopCause.END)


async def test_streams_end_although_a_step_hangs(make: Make) -> None:
    rig = make()
    rig.backend.shut()
    round = rig.begin("s", rig.prompt("Hello!"))
    await rig.backend.stands()
    await rig.engine.stop(timeout_s=0.01)
    assert "stopped" in (await round.failed()).error
    assert rig.engine.is_alive  # and says so
    with pytest.raises(ShuttingDown):
        rig.engine.reserve("alice")


async def test_a_stopped_engine_refuses_and_may_be_stopped_again(make: Make) -> None:
    rig = make()
    await stop_and_check(rig)
    await stop_and_check(rig)
    rig.cancel("s")
    rig.engine.release("s")


async def stop_and_check(rig: Rig) -> None:
    await rig.engine.stop()
    assert not rig.engine.is_alive
    with pytest.raises(ShuttingDown):
        rig.engine.reserve("alice")
    with pytest.raises(ShuttingDown):
        rig.engine.submit("new", rig.prompt("Hello!"), round_of(), principal="alice")


async def test_a_round_that_is_cancelled_ends_as_that_where_its_engine_does_not_stop(make: Make) -> None:
    rig = make()
    rig.backend.shut()
    round = rig.begin("s", rig.prompt("one"))
    await rig.backend.let(2)
    rig.cancel("s")
    await rig.engine.stop(0.05)
    try:
        assert (await round.stopped()).cause is StopCause.CANCELLED
    finally:
        rig.backend.open()
