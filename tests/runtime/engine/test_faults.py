"""What goes wrong for one sequence or one step, and what goes on."""

import pytest

from tenuto.errors import ShuttingDown
from tenuto.pipelines.base import GrammarSource
from tenuto.runtime.engine.messages import Residency, State
from tests.runtime.engine.rig import Make, Reading, Rig, round_of

RULES = [
    {"user_contains": "step", "text": "it fails", "fail": "forward", "fail_at": 3},
    {"user_contains": "sampler", "text": "it fails", "fail": "sampler", "fail_at": 3},
]


async def assert_serves(rig: Rig) -> None:
    """The engine gives right answers, in all its slots at once."""
    rounds = [rig.begin(f"fresh{number}", rig.prompt(f"Hello {number}!")) for number in range(rig.backend.info.slots)]
    for number, round in enumerate(rounds):
        await round.stopped()
        assert round.tokens == rig.answer(f"Hello {number}!")
    assert rig.engine.is_alive


async def test_a_step_that_fails_takes_only_its_own_with_it(make: Make) -> None:
    rig = make(RULES, slots=3)
    prompt = rig.prompt("Stay!")
    paused = rig.begin("paused", prompt)
    await paused.stopped()
    rig.backend.shut()
    bad = rig.begin("bad", rig.prompt("Let the step fail!"))
    company = rig.begin("company", rig.prompt("I am beside it."))
    waits = [rig.begin(f"waits{number}", rig.prompt(f"I wait {number}.")) for number in range(2)]
    await rig.backend.let(1)
    assert rig.count(State.WAITING) == 1  # one of them took the slot of the paused one
    rig.backend.open()
    failed = await bad.failed()
    assert "made this step fail" in failed.error
    assert failed.usage.sampled == len(bad.tokens) == 3
    await company.failed()
    await waits[0].failed()
    await waits[1].stopped()
    assert waits[1].tokens == rig.answer("I wait 1.")
    again = rig.resume("paused", len(prompt) + len(paused.tokens), rig.result("still here"))
    usage = (await again.stopped()).usage
    assert again.tokens == rig.answer("still here")
    assert (usage.residency, usage.computed) == (Residency.HOST, usage.new)
    await assert_serves(rig)


async def test_a_failed_sequence_is_gone_and_is_computed_again(make: Make) -> None:
    rig = make([*RULES, {"user": "x", "text": "y"}])
    bad = rig.begin("s", rig.prompt("Let the step fail!"))
    await bad.failed()
    assert not rig.engine.holds("s", bad.end.usage.prompt + 3 if bad.end else 0)
    assert sum(rig.engine.status.sequences.values()) == 0
    usage = (await rig.begin("s", rig.prompt("x")).stopped()).usage
    assert usage.computed == usage.prompt


async def test_a_sampler_that_fails_takes_only_its_own_with_it(make: Make) -> None:
    rig = make(RULES)
    bad = rig.begin("bad", rig.prompt("Let the sampler fail!"))
    company = rig.begin("company", rig.prompt("I am beside it."))
    failed = await bad.failed()
    assert "made the sampler fail" in failed.error
    assert bad.tokens == rig.answer("it fails")[:3]
    await company.stopped()
    assert company.tokens == rig.answer("I am beside it.")
    await assert_serves(rig)


BAD_ROUNDS = {
    "a grammar that is none": round_of(grammar=GrammarSource(lark="start: nothing")),
    "a grammar that ends in the middle": round_of(grammar=GrammarSource(lark='start: "a"', banned=frozenset(b"a"))),
    "sampling out of range": round_of(temperature=-1.0),
}


@pytest.mark.parametrize("case", BAD_ROUNDS)
async def test_a_round_that_cannot_be_held_fails_alone(make: Make, case: str) -> None:
    rig = make()
    company = rig.begin("company", rig.prompt("I am beside it."))
    bad = rig.read(rig.engine.submit("bad", rig.prompt("Hello!"), BAD_ROUNDS[case], principal="alice"))
    await bad.failed()
    await company.stopped()
    assert company.tokens == rig.answer("I am beside it.")
    assert bad.tokens == []
    await assert_serves(rig)


async def test_a_prompt_that_no_step_can_take_fails_alone(make: Make) -> None:
    rig = make(cells=64)
    company = rig.begin("company", rig.prompt("I am beside it."))
    prompts = {"long": rig.prompt("x" * 64), "empty": [], "unknown": [65, 1 << 20], "negative": [65, -1]}
    rounds = {name: rig.begin(name, prompt) for name, prompt in prompts.items()}
    for name, round in rounds.items():
        failed = await round.failed()
        assert ("at most 64" if name == "long" else "vocabulary") in failed.error
    await company.stopped()
    assert company.tokens == rig.answer("I am beside it.")


async def test_a_resume_beyond_the_context_fails_alone(make: Make) -> None:
    rig = make(cells=64)
    prompt = rig.prompt("Hello!")
    round = rig.begin("s", prompt)
    await round.stopped()
    await rig.resume("s", len(prompt) + len(round.tokens), [65] * 64).failed()
    await assert_serves(rig)


async def swapped(rig: Rig, name: str) -> Reading:
    """Make a sequence, move it out by another one, and begin to bring it back."""
    prompt = rig.prompt(f"Hello {name}!")
    first = rig.begin(name, prompt)
    await first.stopped()
    await rig.begin(f"after {name}", rig.prompt("Go away!")).stopped()
    return rig.resume(name, len(prompt) + len(first.tokens), rig.result("back"))


@pytest.mark.parametrize("method", ["restore", "release"])
async def test_a_cache_that_cannot_be_brought_back_fails_its_own(make: Make, method: str) -> None:
    rig = make(slots=1)
    prompt = rig.prompt("Hello!")
    first = rig.begin("s", prompt)
    await first.stopped()
    await rig.begin("other", rig.prompt("Go away!")).stopped()
    rig.backend.broken.add(method)
    await rig.resume("s", len(prompt) + len(first.tokens), rig.result("back")).failed()
    rig.backend.broken.clear()
    await assert_serves(rig)  # no slot was lost


async def test_a_cache_that_cannot_be_copied_out_is_computed_again(make: Make) -> None:
    rig = make(slots=1)
    rig.backend.broken.add("snapshot")
    round = await swapped(rig, "s")
    usage = (await round.stopped()).usage
    assert round.tokens == rig.answer("back")
    assert (usage.computed, usage.cached, usage.miss_reason) == (usage.prompt, 0, "not_resident")
    assert usage.new < usage.computed


async def test_a_prefix_that_cannot_be_forked_fails_its_own(make: Make) -> None:
    rig = make()
    await rig.begin("donor", rig.prompt("The same beginning. One?")).stopped()
    rig.backend.broken.add("fork")
    await rig.begin("s", rig.prompt("The same beginning. Two?")).failed()
    rig.backend.broken.clear()
    await assert_serves(rig)


async def test_a_cut_that_fails_fails_its_own(make: Make) -> None:
    rig = make()
    await rig.begin("s", rig.prompt("The same beginning. One?")).stopped()
    rig.backend.broken.add("truncate")
    await rig.begin("s", rig.prompt("The same beginning. Two?")).failed()
    rig.backend.broken.clear()
    await assert_serves(rig)


async def test_an_engine_that_died_says_so_and_ends_all_rounds(make: Make) -> None:
    rig = make(slots=2)
    prompt = rig.prompt("Hello!")
    paused = rig.begin("paused", prompt)
    await paused.stopped()
    rig.backend.shut()
    rounds = [rig.begin(f"s{number}", rig.prompt("Hello!")) for number in range(4)]
    await rig.backend.let(1)
    rig.backend.broken.add("collect")  # it gives fewer tokens than there are rows, which no backend may
    late = rig.begin("late", rig.prompt("Hello!"))  # the thread will never take this one
    await rig.backend.let_last()
    for round in (*rounds, late):
        assert "has stopped" in (await round.failed()).error
    with pytest.raises(ShuttingDown):
        rig.engine.reserve("alice")
    assert not rig.engine.holds("paused", len(prompt) + len(paused.tokens))
    with pytest.raises(ShuttingDown):
        rig.begin("new", prompt)
    assert not any(sampler.is_open for sampler in rig.backend.samplers)
    await rig.engine.stop()
    assert not rig.engine.is_alive
