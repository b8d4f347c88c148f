"""Nobody stands still because of somebody else's long prompt, and nobody waits for ever."""

import pytest

from tenuto.runtime.engine.messages import State
from tests.runtime.engine.rig import Make

LONG = "0123456789" * 30


@pytest.mark.parametrize("chunk", [1, 8, 50])
async def test_a_long_cold_prompt_does_not_stop_the_others_from_decoding(make: Make, chunk: int) -> None:
    rig = make(prefill_chunk=chunk, batch_tokens=64)
    rig.backend.shut()
    talks = rig.begin("talks", rig.prompt(LONG))
    while rig.count(State.DECODING) == 0:
        await rig.backend.let()
    prompt = rig.prompt("x" * 100)
    cold = rig.begin("cold", prompt)
    await rig.backend.let()  # the step that stood there was planned before
    steps = len(rig.backend.steps)
    for _ in range(-(-len(prompt) // chunk)):
        said = len(talks.tokens)
        assert cold.tokens == []
        await rig.backend.let()
        assert len(talks.tokens) == said + 1
    assert len(cold.tokens) == 1
    fed = [[len(row.tokens) for row in step] for step in rig.backend.steps[steps:]]
    assert all(1 in step and sum(step) <= 1 + chunk for step in fed[:-1])
    rig.backend.open()
    for round, text in ((talks, LONG), (cold, "x" * 100)):
        await round.stopped()
        assert round.tokens == rig.answer(text)


async def test_a_short_resume_does_not_wait_for_a_long_cold_prompt(make: Make) -> None:
    rig = make(batch_tokens=32)
    prompt = rig.prompt("Hello!")
    first = rig.begin("short", prompt)
    await first.stopped()
    rig.backend.shut()
    cold = rig.begin("cold", rig.prompt(LONG))
    await rig.backend.stands()
    short = rig.resume("short", len(prompt) + len(first.tokens), rig.result("ok"))
    await rig.backend.let(2)
    assert len(short.tokens) == 1
    assert cold.tokens == []
    rig.backend.open()
    await short.stopped()
    await cold.stopped()


async def test_everybody_is_served_although_there_are_more_than_a_step_can_feed(make: Make) -> None:
    rig = make(slots=6, batch_tokens=6, prefill_chunk=1)
    rig.backend.shut()
    talks = rig.begin("talks", rig.prompt(LONG))
    while rig.count(State.DECODING) == 0:
        await rig.backend.let()
    others = [rig.begin(f"s{number}", rig.prompt("Hi!")) for number in range(5)]
    size = len(rig.prompt("Hi!"))
    # One token a step goes to five prompts in turn: all are read at about the same time, none after the others.
    await rig.backend.let(5 * (size - 1))
    assert not any(round.tokens for round in others)
    await rig.backend.let(1 + 5)
    assert all(round.tokens for round in others)
    rig.backend.open()
    for round in (talks, *others):
        await round.stopped()


async def test_one_without_a_slot_gets_one_although_the_others_resume_at_once(make: Make) -> None:
    rig = make(slots=2)
    lengths: dict[str, int] = {}
    rounds = {}
    for name in ("a", "b"):
        prompt = rig.prompt(f"Hello {name}!")
        rounds[name] = rig.begin(name, prompt)
        lengths[name] = len(prompt)
    for name, round in rounds.items():
        await round.stopped()
        lengths[name] += len(round.tokens)
    rig.backend.shut()
    rounds = {name: rig.resume(name, lengths[name], rig.result("go on")) for name in rounds}
    await rig.backend.stands()
    stranger = rig.begin("stranger", rig.prompt("And me?"))
    steps = 0
    while not stranger.tokens:
        for name, round in list(rounds.items()):
            if round.end is not None:
                lengths[name] = round.end.usage.prompt + round.end.usage.sampled
                rounds[name] = rig.resume(name, lengths[name], rig.result("go on"))
        await rig.backend.let()
        steps += 1
        assert steps < 40
    rig.backend.open()
    for round in (stranger, *rounds.values()):
        await round.stopped()
    assert stranger.tokens == rig.answer("And me?")


async def test_a_step_copies_at_most_one_cache(make: Make) -> None:
    rig = make(slots=4)
    system = "The same beginning for everybody. "
    await rig.begin("donor", rig.prompt(system)).stopped()
    rig.backend.shut()
    talks = rig.begin("talks", [65, *rig.prompt(LONG)])
    await rig.backend.let(2)
    others = [rig.begin(f"s{number}", rig.prompt(system + str(number))) for number in range(2)]
    await rig.backend.let(1)
    assert (rig.count(State.PREFILLING), rig.count(State.WAITING)) == (1, 1)
    await rig.backend.let(1)
    assert rig.count(State.WAITING) == 0
    rig.backend.open()
    for number, round in enumerate(others):
        usage = (await round.stopped()).usage
        assert usage.cached >= len(system)
        assert round.tokens == rig.answer(system + str(number))
    await talks.stopped()


async def test_a_principal_with_many_rounds_keeps_no_other_waiting_for_all_of_them(make: Make) -> None:
    rig = make(slots=2)
    rig.backend.shut()
    many = [rig.begin(f"a{number}", rig.prompt("words")) for number in range(10)]
    await rig.backend.let(2)
    one = rig.begin("b", rig.prompt("hello"), principal="bob")
    while not one.tokens:
        await rig.backend.let()
    assert sum(bool(round.tokens) for round in many) <= 3, "those at work when it came, and one beside it"
    rig.backend.open()
    for round in (*many, one):
        await round.stopped()
