"""What a token costs does not grow with what stands before it, whatever a model writes: these turns would never end."""

import pytest

from tenuto.pipelines.turns import CallBroken, CallFinished, TextDelta
from tenuto.sessions.items import ToolSpec
from tests.pipelines.formats.vocabularies import TOOLS, read

SIZE = 15_000
CLOSER = "</parameter>"
ANYTHING = ToolSpec("h", "", {"type": "object", "properties": {"o": {"type": "object"}, "x": {}}})
FUNCTION = "<tool_call>\n<function=h>\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "' + "n" * SIZE),
        ("hermes", '<tool_call>{"name": "f"' + " " * SIZE),
        ("hermes", "<tool_call>{" + " " * SIZE),
        ("hermes", "x" + "\n" * SIZE),
        ("llama3", " " * SIZE),
        ("llama3", '{"name": "' + "n" * SIZE),
        ("mistral-named", "[TOOL_CALLS]" + "n" * SIZE),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>" + "n" * SIZE),
        ("glm", "<tool_call>f\n<arg_key>" + "k" * SIZE),
        ("glm", "<tool_call>f\n<arg_key>a</arg_key>" + " " * SIZE),
        ("llama4", "[" + "n" * SIZE),
        ("gemma4", "<|tool_call>call:" + "n" * SIZE),
        ("qwen3-coder", "<tool_call>\n<function=" + "n" * SIZE),
        ("qwen3-coder", FUNCTION + "odd" * (SIZE // 3)),
        ("qwen3-coder", f"{FUNCTION}<parameter=x>\n" + "v" * SIZE),
        ("qwen3-coder", f'{FUNCTION}<parameter=o>\n{{"a": "{CLOSER * (SIZE // len(CLOSER))}'),
    ],
)
def test_a_turn_that_never_comes_to_its_point_is_read_to_its_end(name: str, text: str) -> None:
    events = read(name, text, ids=False, cuts=range(len(text)), tools=[*TOOLS, ANYTHING])
    assert not [event for event in events if isinstance(event, CallFinished)]


def test_what_is_too_long_for_a_name_is_text_where_nothing_else_opens_a_call() -> None:
    text = '{"name": "' + "n" * 1000
    assert read("llama3", text, ids=False, stop=False, cuts=range(len(text))) == [TextDelta(text)]


def test_a_value_may_hold_what_closes_values_in_its_strings_alone() -> None:
    value = '{"a": "' + CLOSER * 3 + '"}'
    text = f"{FUNCTION}<parameter=o>\n{value}\n{CLOSER}\n</function>\n</tool_call>"
    for cuts in ((), range(len(text))):
        assert read("qwen3-coder", text, ids=False, cuts=cuts, tools=[ANYTHING])[-1] == CallFinished(
            0, "h", f'{{"o": {value}}}'
        )


def test_a_name_that_is_too_long_is_told_as_a_fault() -> None:
    text = f"<tool_call>\n<function={'n' * 1000}>\n</function>\n</tool_call>"
    for cuts in ((), range(len(text))):
        (broken,) = read("qwen3-coder", text, ids=False, cuts=cuts)
        assert isinstance(broken, CallBroken)
        assert broken.reason == "the call names no tool"


def test_half_a_character_that_a_value_spells_is_not_told() -> None:
    text = f"{FUNCTION}<parameter=o>\n['\\ud800']\n{CLOSER}\n</function>\n</tool_call>"
    finished = read("qwen3-coder", text, ids=False, tools=[ANYTHING])[-1]
    assert isinstance(finished, CallFinished)
    assert finished.arguments.encode()
