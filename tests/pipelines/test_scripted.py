"""What a script can say; that it keeps the contract of every pipeline is tested in tests/contract."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Row, RowFailed, Sampling
from tenuto.pipelines.base import Constraint, Pipeline, ToolChoice
from tenuto.pipelines.loader import load
from tenuto.pipelines.turns import CallFinished, ReasoningDelta, TextDelta, TurnEvent
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

WEATHER = ToolSpec(
    "weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)

SCRIPT = r"""
[[rules]]
user_matches = 'weather in (?P<city>\w+)'
reasoning = "They want ${city}."
calls = [{ name = "weather", arguments = { city = "${city}" } }]

[[rules]]
tool_contains = "rain"
text = "Take an umbrella: ${tool}"

[[rules]]
user = "two"
calls = [{ name = "weather", arguments = { city = "Oslo" } }, { name = "weather", arguments = { city = "Rom" } }]

[[rules]]
turn = 2
user_contains = "again"
text = "I said it ${1} before; $$5, ${unknown}."

[[rules]]
system_matches = 'You are (\w+)'
text = "I am ${1}."
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return scripted(tmp_path, SCRIPT)


def scripted(folder: Path, text: str) -> Pipeline:
    path = folder / "script.toml"
    path.write_text(text)
    return load(f"scripted:{path}")


def prompt(pipeline: Pipeline, items: Sequence[Item], tools: Sequence[ToolSpec] = ()) -> list[int]:
    rendered = pipeline.codec.suffix([], items, tools, ended=True)
    return [token for item in rendered.items for token in item] + list(rendered.opening)


def sample(
    pipeline: Pipeline, tokens: Sequence[int], constraint: Constraint | None = None, most: int = 400
) -> list[int]:
    backend = pipeline.backend
    sampler, held, feed, answer = backend.sampler(Sampling()), 0, list(tokens), list[int]()
    while len(answer) < most and not (answer and answer[-1] in pipeline.codec.info.stop_tokens):
        mask = constraint.mask() if constraint else None
        [token] = backend.collect(backend.launch([Row(0, held, feed, sampler, mask)]))
        assert isinstance(token, int)
        held, feed = held + len(feed), [token]
        answer.append(token)
        if constraint:
            constraint.accept(token)
    backend.release(0)
    return answer


def events(pipeline: Pipeline, tokens: Sequence[int]) -> list[TurnEvent]:
    parser = pipeline.codec.parser(calls=True)
    stops = pipeline.codec.info.stop_tokens
    return [event for token in tokens if token not in stops for event in parser.push(token)] + parser.finish()


def said(pipeline: Pipeline, *items: Item, tools: Sequence[ToolSpec] = ()) -> tuple[str, str, list[tuple[str, str]]]:
    """The text, the reasoning and the calls of the answer, as the codec's own parser reads them."""
    found = events(pipeline, sample(pipeline, prompt(pipeline, items, tools)))
    return (
        "".join(event.text for event in found if isinstance(event, TextDelta)),
        "".join(event.text for event in found if isinstance(event, ReasoningDelta)),
        [(event.name, event.arguments) for event in found if isinstance(event, CallFinished)],
    )


CALL = AssistantItem(calls=(ToolCall("1", "weather", '{"city": "Oslo"}'),))


def test_a_rule_calls_a_tool_with_what_it_found_in_the_text(pipeline: Pipeline) -> None:
    answer = said(pipeline, UserItem("How is the weather in Oslo?"), tools=[WEATHER])
    assert answer == ("", "They want Oslo.", [("weather", '{"city": "Oslo"}')])


def test_the_same_user_message_does_not_answer_its_tools_results(pipeline: Pipeline) -> None:
    asked = UserItem("How is the weather in Oslo?")
    rain, sun = (ToolResultItem("1", "weather", text) for text in ("rain all day", "sun"))
    assert said(pipeline, asked, CALL, rain)[0] == "Take an umbrella: rain all day"
    assert said(pipeline, asked, CALL, sun)[0] == "sun"
    assert said(pipeline, asked, CALL, sun, rain)[0] == "Take an umbrella: sun\nrain all day"


def test_a_turn_can_hold_several_calls(pipeline: Pipeline) -> None:
    assert said(pipeline, UserItem("two"), tools=[WEATHER])[2] == [
        ("weather", '{"city": "Oslo"}'),
        ("weather", '{"city": "Rom"}'),
    ]


def test_rules_can_ask_for_the_turn_and_the_system_message(pipeline: Pipeline) -> None:
    hello = (UserItem("hello"), AssistantItem("hello"))
    assert said(pipeline, SystemItem("You are Ada."), UserItem("who?"), tools=[WEATHER])[0] == "I am Ada."
    assert said(pipeline, *hello, UserItem("again"))[0] == "I said it ${1} before; $5, ${unknown}."
    assert said(pipeline, *hello, *hello, UserItem("again"))[0] == "again"


def test_what_no_rule_answers_is_echoed(pipeline: Pipeline) -> None:
    assert said(pipeline, UserItem("Grüße, <|end|> und <tool_call>!"))[0] == "Grüße, <|end|> und <tool_call>!"


def test_text_without_a_conversation_ends_at_once(pipeline: Pipeline) -> None:
    assert sample(pipeline, pipeline.codec.tokenize("just text")) == [*pipeline.codec.info.stop_tokens]


def test_a_required_call_keeps_the_scripts_arguments_though_the_grammar_has_other_spaces(pipeline: Pipeline) -> None:
    source = pipeline.codec.grammar([WEATHER], ToolChoice.REQUIRED, parallel=False)
    assert source is not None
    tokens = prompt(pipeline, [UserItem("weather in Oslo")], [WEATHER])
    answer = sample(pipeline, tokens, pipeline.codec.constraint(source))
    [call] = [event for event in events(pipeline, answer) if isinstance(event, CallFinished)]
    assert json.loads(call.arguments) == {"city": "Oslo"}


@pytest.mark.parametrize("can_truncate", [True, False])
def test_a_script_can_forbid_to_cut(tmp_path: Path, can_truncate: bool) -> None:
    backend = scripted(tmp_path, f"can_truncate = {str(can_truncate).lower()}").backend
    backend.collect(backend.launch([Row(0, 0, [65, 66, 67])]))
    assert backend.info.can_truncate == can_truncate
    assert backend.truncate(0, 2) == can_truncate
    assert backend.snapshot(0).tokens == (2 if can_truncate else 3)
    assert backend.truncate(0, 0)


def test_a_scripted_sampler_failure_hits_its_row_alone(tmp_path: Path) -> None:
    pipeline = scripted(tmp_path, 'rules = [{ user = "bad", fail = "sampler" }]')
    backend = pipeline.backend
    rows = [
        Row(slot, 0, prompt(pipeline, [UserItem(text)]), backend.sampler(Sampling()))
        for slot, text in enumerate(("bad", "good"))
    ]
    bad, good = backend.collect(backend.launch(rows))
    assert isinstance(bad, RowFailed)
    assert good == ord("g")


def test_a_scripted_step_failure_leaves_its_slots_undefined_until_released(tmp_path: Path) -> None:
    pipeline = scripted(tmp_path, 'rules = [{ user = "bad", text = "abc", fail = "forward", fail_at = 1 }]')
    backend = pipeline.backend
    tokens = prompt(pipeline, [UserItem("bad")])
    backend.collect(backend.launch([Row(2, 0, [65])]))
    assert backend.collect(backend.launch([Row(0, 0, tokens, backend.sampler(Sampling()))])) == [ord("a")]
    with pytest.raises(GenerationFailed):
        backend.launch([Row(0, len(tokens), [ord("a")], backend.sampler(Sampling())), Row(1, 0, [65])])
    for slot in (0, 1):
        with pytest.raises(ValueError, match="undefined"):
            backend.snapshot(slot)
        backend.release(slot)
        assert backend.snapshot(slot).tokens == 0
    assert backend.snapshot(2).tokens == 1
