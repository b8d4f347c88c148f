"""Models whose chat template knows no tools are told of them in words, and read the past as their own."""

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.turns import CallFinished, CallStarted, ReasoningDelta, TextDelta
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tests.pipelines.families import CHATML, SHORT_SIGHTED
from tests.pipelines.formats.turns import merged
from tests.pipelines.formats.vocabularies import TOOLS, ByteTokenizer, read

GEMMA = SHORT_SIGHTED["gemma"]
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + GEMMA
LLAMA_2 = (
    "{% if messages[0].role == 'system' %}{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}{% set content = system + m.content if loop.first else m.content %}"
    "{% if m.role == 'user' %}{{ '<s>[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + content.strip() + ' </s>' }}{% endif %}{% endfor %}"
)
ENDED = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<end>\\n' }}{% endfor %}"
ENDED += "{{ '<|assistant|>\\n' if add_generation_prompt else '</s>' }}"
TEMPLATES = {"chatml": CHATML, "gemma": GEMMA, "no system": NO_SYSTEM, "llama 2": LLAMA_2, "ended": ENDED}
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
EACH = pytest.mark.parametrize("name", TEMPLATES)

F, G = ToolCall("call_1", "f", '{"a": "b"}'), ToolCall("call_2", "g", '{"n": 1}')
RESULTS = (ToolResultItem("call_1", "f", "it is noon"), ToolResultItem("call_2", "g", "[2]"))
HISTORY: tuple[Item, ...] = (
    SystemItem("Be brief."), UserItem("Now?"), AssistantItem("Let me see.", calls=(F, G)), *RESULTS,
    AssistantItem("Noon."), UserItem("Thanks."),
)  # fmt: skip


def codec_of(name: str, markers: Sequence[str] = (), tool_format: str | None = None) -> TemplateCodec:
    tokenizer = ByteTokenizer(
        [*markers, "<|im_end|>", "<end_of_turn>", "</s>"], ["<|im_end|>", "<end_of_turn>", "</s>"]
    )
    tokenizer.special_texts = {"bos_token": "<s>", "eos_token": "</s>"}
    return TemplateCodec("m", tokenizer, TEMPLATES[name], tool_format)


@cache
def with_markers(name: str) -> TemplateCodec:
    """Whether it looks back is found out once, for all examples."""
    return codec_of(name, MARKERS)


def spans(codec: TemplateCodec, before: Sequence[Item], new: Sequence[Item], tools: Sequence[ToolSpec]) -> list[str]:
    rendered = codec.suffix(before, new, tools, ended=False)
    return [codec.detokenize(span) for span in (*rendered.items, rendered.opening)]


@EACH
def test_the_tools_are_told_once_behind_the_instructions_and_before_the_first_request(name: str) -> None:
    codec = codec_of(name)
    text = "".join(spans(codec, (), HISTORY, TOOLS))
    assert text.count("You can call tools.") == text.count('{"name": "f", "description"') == 1
    assert text.index("Be brief.") < text.index("You can call tools.") < text.index("Now?")
    without = "".join(spans(codec, (), HISTORY[1:], TOOLS))
    assert without.index("You can call tools.") < without.index("Now?")
    assert "call tools" not in "".join(spans(codec, (), HISTORY, []))


def test_where_there_are_no_instructions_the_first_request_has_them() -> None:
    (first, _) = spans(codec_of("no system"), (), [UserItem("Now?")], TOOLS)
    assert first.startswith("<s><start_of_turn>user\n[system message]\nYou can call tools.")
    assert first.endswith("else answer in plain text.\n\nNow?")


@EACH
def test_results_are_told_as_messages_of_the_user(name: str) -> None:
    text = "".join(spans(codec_of(name), (), HISTORY, TOOLS))
    first = text.index("<tool_response>\nf:\nit is noon\n</tool_response>")
    assert first < text.index("<tool_response>\ng:\n[2]\n</tool_response>") < text.index("Noon.")


@EACH
@pytest.mark.parametrize("markers", [MARKERS, ()], ids=["tokens", "text"])
def test_calls_of_the_past_are_read_as_what_they_were(name: str, markers: Sequence[str]) -> None:
    codec = codec_of(name, markers)
    opening = codec.suffix(HISTORY[:2], [], TOOLS, ended=False).opening
    (turn,) = codec.suffix(HISTORY[:2], HISTORY[2:3], TOOLS, ended=False).items
    parser = codec.parser(calls=True, tools=TOOLS)
    tokens = [*turn[len(opening) :], min(codec.info.stop_tokens)]
    events = merged([*(event for token in tokens for event in parser.push(token)), *parser.finish()])
    assert events[0] == TextDelta("Let me see." if name != "llama 2" else " Let me see.")
    assert [event for event in events if isinstance(event, CallFinished)] == [
        CallFinished(0, "f", F.arguments),
        CallFinished(1, "g", G.arguments),
    ]


def test_a_marker_of_the_vocabulary_is_one_in_what_is_told_and_never_in_content() -> None:
    codec = codec_of("chatml", MARKERS)
    quoted = "".join(MARKERS)
    past = (
        UserItem(quoted), AssistantItem(calls=(ToolCall("c", quoted, f'{{"a": "{quoted}"}}'),)),
        ToolResultItem("c", quoted, quoted),
    )  # fmt: skip
    rendered = codec.suffix((), past, [ToolSpec(quoted, quoted, {"description": quoted})], ended=False)
    tokens = [token for span in rendered.items for token in span]
    assert codec.detokenize(tokens).count("<tool_call>") == 8 + 2
    opener, closer, begin, end = (257 + place for place in range(4))
    assert [token for token in tokens if token in (opener, closer, begin, end)] == [
        opener, closer, begin, end, opener, closer, begin, end,
    ]  # fmt: skip


CALLING = st.builds(
    lambda text, count: (
        AssistantItem(text, calls=(F, G)[:count]),
        *(RESULTS[:count]),
    ),
    st.sampled_from(["", "Let me see.", " ends in a space "]),
    st.integers(1, 2),
)
ROUND = st.builds(
    lambda asked, calls, said: [UserItem(asked), *(item for call in calls for item in call), AssistantItem(said)],
    st.sampled_from(["Now?", "</tool_response>", "ends\n"]), st.lists(CALLING, max_size=2),
    st.sampled_from(["Noon.", "é"]),
)  # fmt: skip


@EACH
@settings(max_examples=25, deadline=None)
@given(system=st.booleans(), rounds=st.lists(ROUND, min_size=1, max_size=3), data=st.data())
def test_what_is_rendered_item_by_item_is_what_is_rendered_at_once(
    name: str, system: bool, rounds: list[list[Item]], data: st.DataObject
) -> None:
    items = [*([SystemItem("Be brief.")] if system else []), *(item for each in rounds for item in each)]
    cut = data.draw(st.integers(0, len(items) - 1))
    codec = with_markers(name)
    assert codec.looks_back is None
    assert spans(codec, items[:cut], items[cut:], TOOLS)[:-1] == spans(codec, (), items, TOOLS)[cut:-1]


def test_a_ledger_of_told_tools_is_none_of_plain_text() -> None:
    told, plain = codec_of("chatml"), codec_of("chatml", tool_format="plain")
    assert told.fingerprint(TOOLS) != plain.fingerprint(TOOLS)
    assert told.fingerprint(TOOLS) == codec_of("chatml").fingerprint(TOOLS)


@pytest.mark.parametrize("cuts", [(), range(300)], ids=["whole", "streamed"])
class TestWithoutTags:
    def test_an_object_that_begins_a_turn_and_names_a_tool_is_a_call(self, cuts: Sequence[int]) -> None:
        text = '<think>hm</think>\n{"name": "f", "arguments": {"a": "b"}}'
        events = read("generic", text, ids=True, cuts=cuts)
        assert events[:2] == [ReasoningDelta("hm"), CallStarted(0, "f")]
        assert events[-1] == CallFinished(0, "f", '{"a": "b"}')

    @pytest.mark.parametrize(
        "text",
        ['{"name": "Bob", "arguments": {}}', 'So: {"name": "f", "arguments": {}}', '{"name": "f"} is it', '{"nam'],
    )
    def test_any_other_json_is_text(self, cuts: Sequence[int], text: str) -> None:
        assert read("generic", text, ids=True, cuts=cuts) == [TextDelta(text)]
