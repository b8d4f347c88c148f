"""Rounds whose tokens were guessed are the rounds that they would have been, in fewer steps."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.engine.messages import StopCause
from tenuto.sessions.items import ToolSpec
from tests.runtime.engine.rig import Make, Reading, Rig

TEXT = "one and two and three, and one and two and three, and one and two and three again"
SLOW = [{"user_matches": ".+", "text": "${user}", "delay_ms": 20}]
"""A step takes long, and a drafted token next to nothing: what drafts are for."""
Begin = Callable[[Rig], Reading]


def rigs(make: Make, **settings: object) -> tuple[Rig, Rig]:
    """One that drafts, and one that does not."""
    return make(SLOW, drafts=16, slots=4, **settings), make(SLOW, drafts=0, slots=4, **settings)


async def told(rig: Rig, **options: Any) -> tuple[list[int], StopCause, str | None, int]:
    reading = rig.begin("s", rig.prompt(TEXT), **options)
    stopped = await reading.stopped()
    return reading.tokens, stopped.cause, stopped.stop_string, stopped.usage.sampled


ANSWER = {"type": "object", "properties": {"one": {"const": "a long text that is given"}}, "required": ["one"]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_tokens": 30},
        {"stop": ("three, and one",)},
        {"stop": ("again",)},
    ],
)
async def test_a_round_is_the_same_in_fewer_steps(make: Make, options: dict[str, object]) -> None:
    with_drafts, without = rigs(make)
    assert await told(with_drafts, **options) == await told(without, **options)
    assert len(with_drafts.backend.steps) < len(without.backend.steps)
    assert with_drafts.engine.status.accepted > 0
    assert without.engine.status.drafted == 0


async def test_what_a_grammar_leaves_no_choice_of_is_said_in_few_steps(make: Make) -> None:
    with_drafts, without = rigs(make)
    grammar = with_drafts.codec.grammar((), ToolChoice.NONE, parallel=True, answer=ANSWER)
    first, second = await told(with_drafts, grammar=grammar), await told(without, grammar=grammar)
    assert first == second
    text = bytes(token for token in first[0] if token < 256).decode()
    assert json.loads(text) == {"one": "a long text that is given"}
    assert len(with_drafts.backend.steps) < len(without.backend.steps)


async def test_a_forced_call_is_the_same(make: Make) -> None:
    with_drafts, without = rigs(make)
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Palermo"]}}, "required": ["city"]}
    tools = [ToolSpec("weather", "", schema)]
    grammar = with_drafts.codec.grammar(tools, ToolChoice.REQUIRED, parallel=False)
    options = {"grammar": grammar, "max_tokens": 200}
    assert await told(with_drafts, **options) == await told(without, **options)
    assert len(with_drafts.backend.steps) < len(without.backend.steps)


async def test_a_slot_holds_what_was_said_and_nothing_that_was_guessed(make: Make) -> None:
    rig, _ = rigs(make)
    reading = rig.begin("s", rig.prompt(TEXT))
    await reading.stopped()
    await rig.idle()
    seen = [*rig.prompt(TEXT), *reading.tokens]
    held = rig.backend.held(0)
    assert held == seen[: len(held)]
    assert len(held) == len(seen) - 1
    again = rig.resume("s", len(seen), rig.result("one and two and three"))
    assert (await again.stopped()).usage.computed == len(rig.result("one and two and three")) + 1


async def test_several_rounds_draft_side_by_side_and_each_is_what_it_is_alone(make: Make) -> None:
    with_drafts, without = rigs(make)
    texts = [TEXT, TEXT[::-1], "short", TEXT.replace("and", "or")]
    said = []
    for rig in (with_drafts, without):
        readings = [rig.begin(f"s{at}", rig.prompt(text), f"p{at}") for at, text in enumerate(texts)]
        said.append([((await one.stopped()).cause, one.tokens) for one in readings])
    assert said[0] == said[1]
    assert with_drafts.engine.status.accepted > 0


async def test_a_draft_that_cannot_be_cut_off_fails_its_round_alone(make: Make) -> None:
    rig, _ = rigs(make)
    rig.backend.broken.add("truncate")
    broken = rig.begin("s", rig.prompt(TEXT))
    end = await broken.ended()
    rig.backend.broken.clear()
    await rig.begin("other", rig.prompt("fine"), "bob").stopped()
    # Where all guesses were right, nothing had to be cut off.
    assert "truncate is broken" in getattr(end, "error", "truncate is broken")


async def test_a_round_that_is_cancelled_while_it_drafts_costs_no_further_step(make: Make) -> None:
    rig, _ = rigs(make)
    rig.backend.shut()
    reading = rig.begin("s", rig.prompt(TEXT))
    await rig.backend.let(6)
    rig.cancel("s")
    await rig.backend.let_last()
    assert (await reading.stopped()).cause is StopCause.CANCELLED
    assert reading.tokens == rig.answer(TEXT)[: len(reading.tokens)]
    assert len(rig.backend.steps) <= 8
