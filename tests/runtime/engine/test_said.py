"""A round that goes on after what it has said in an earlier process, as if it had never stopped."""

import pytest

from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.engine.messages import StopCause
from tests.runtime.engine.rig import Make

TEXT = "one two three four five six"


async def test_a_round_goes_on_after_what_it_has_said(make: Make) -> None:
    rig = make()
    prompt, whole = rig.prompt(TEXT), rig.answer(TEXT)
    for cut in (1, 7, len(whole) - 1):
        round = rig.begin(f"s{cut}", prompt, principal=f"p{cut}", said=whole[:cut])
        stopped = await round.stopped()
        assert (round.tokens, stopped.cause) == (whole[cut:], StopCause.END)
        usage = stopped.usage
        assert (usage.prompt, usage.computed, usage.sampled) == (len(prompt), len(prompt) + cut, len(whole))
    assert rig.engine.holds(f"s{cut}", len(prompt) + len(whole)), "the next round goes on after all of it"


async def test_a_stop_string_that_was_half_said_is_found(make: Make) -> None:
    rig = make()
    whole = rig.answer(TEXT)
    round = rig.begin("s", rig.prompt(TEXT), said=whole[:9], stop=("three",))
    stopped = await round.stopped()
    assert (stopped.cause, stopped.stop_string) == (StopCause.STOP_STRING, "three")
    assert bytes([*whole[:9], *round.tokens]).decode() == "one two three"


async def test_what_was_said_counts_for_the_limit(make: Make) -> None:
    rig = make()
    whole = rig.answer(TEXT)
    round = rig.begin("s", rig.prompt(TEXT), said=whole[:5], max_tokens=8)
    assert (await round.stopped()).cause is StopCause.LIMIT
    assert round.tokens == whole[5:8]


async def test_a_grammar_goes_on_where_it_stood(make: Make) -> None:
    rig = make()
    answer = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = rig.codec.grammar((), ToolChoice.NONE, parallel=True, answer=answer)
    rounds = [rig.begin("s", rig.prompt(TEXT), grammar=grammar, max_tokens=40)]
    await rounds[0].stopped()
    whole = rounds[0].tokens
    rounds.append(rig.begin("other", rig.prompt(TEXT), grammar=grammar, max_tokens=40, said=whole[:4]))
    await rounds[1].stopped()
    assert rounds[1].tokens == whole[4:]


@pytest.mark.parametrize("wrong", ["the end", "too much", "no token"])
async def test_a_round_that_is_over_does_not_go_on(make: Make, wrong: str) -> None:
    rig = make()
    whole = rig.answer(TEXT)
    said = {"the end": whole, "too much": whole[:8], "no token": [1 << 20]}[wrong]
    failed = await rig.begin("s", rig.prompt(TEXT), said=said, max_tokens=8 if wrong == "too much" else 100).failed()
    assert "InvalidRequest" in failed.error
    again = rig.begin("s", rig.prompt(TEXT))
    await again.stopped()
    assert again.tokens == whole
