"""A turn's tokens become the same events for every way of cutting them; nothing that a model writes raises."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.formats import format_of
from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.tokenizer import Tokenizer
from tenuto.pipelines.turns import (
    CallArguments,
    CallBroken,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEvent,
)
from tenuto.pipelines.vocabulary import vocabulary_of
from tests.pipelines.formats.turns import assert_calls_end, called, merged
from tests.pipelines.formats.vocabularies import pieces_of

PROBE = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def read(
    pieces: Sequence[bytes], *, ids: bool, calls: bool = True, opening: str = "", stop: bool = True
) -> list[TurnEvent]:
    """The events of a turn. With `ids` a piece that is a marker is a token of its own; else text alone shows them."""
    vocabulary = vocabulary_of(
        (*(marker.encode() for marker in MARKERS), b"<end>", *pieces),
        frozenset({4}),
        frozenset({4}),
        {marker: token for token, marker in enumerate(MARKERS)} if ids else {},
    )
    parser = format_of(Surroundings("<think>", opening, PROBE, vocabulary)).form.parser(calls=calls)
    known = {marker.encode(): token for token, marker in enumerate(MARKERS)} if ids else {}
    tokens = [known.get(piece, 5 + index) for index, piece in enumerate(pieces)] + [4] * stop
    return merged([*(event for token in tokens for event in parser.push(token)), *parser.finish()])


def whole(text: str, *, ids: bool = False, calls: bool = True, opening: str = "", stop: bool = True) -> list[TurnEvent]:
    return read(cut(text, ids), ids=ids, calls=calls, opening=opening, stop=stop)


def cut(text: str, ids: bool, cuts: Iterable[int] = ()) -> list[bytes]:
    """The text in bytes, cut at the given places, and around every marker where markers are tokens."""
    return pieces_of(text, MARKERS if ids else (), cuts)


FRAGMENTS = [
    *MARKERS, CALL, "<", "<tool_", "call>", "</", "\n", " ", "x", '{"name": "g", "arguments": {', '"b": "c<', '"}}',
    '{"arguments": {"q": [1, {}]}, "name": "h"}', '"arguments"', '"', "\\", "\u00e9\u2603", '"</tool_call>"',
    "}", ', "name": "z"',
]  # fmt: skip
turns = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=14).map("".join)


@pytest.mark.parametrize("ids", [True, False])
@given(text=turns, cuts=st.lists(st.integers(0, 200), max_size=40), calls=st.booleans(), stop=st.booleans())
def test_the_events_do_not_depend_on_how_the_turn_was_cut(
    ids: bool, text: str, cuts: list[int], calls: bool, stop: bool
) -> None:
    expected = whole(text, ids=ids, calls=calls, stop=stop)
    assert read(cut(text, ids, cuts), ids=ids, calls=calls, stop=stop) == expected
    assert read(cut(text, ids, range(400)), ids=ids, calls=calls, stop=stop) == expected


@pytest.mark.parametrize("ids", [True, False])
@given(text=turns)
def test_every_started_call_ends_and_calls_count_from_zero(ids: bool, text: str) -> None:
    assert_calls_end(whole(text, ids=ids))


@given(text=st.text("<tol_caregniuk>/ \n\u00e9\U0001f600") | turns)
def test_without_calls_everything_that_is_not_reasoning_is_text(text: str) -> None:
    text = text.replace("<think>", "").replace("</think>", "")
    expected = [TextDelta(text.rstrip())] if text.strip() else []
    assert whole(text, calls=False, ids=False) == expected
    assert whole(text, calls=False, ids=True) == expected


@pytest.mark.parametrize("ids", [True, False])
class TestTurns:
    def test_text_then_calls(self, ids: bool) -> None:
        assert whole(f" Let me see.\n{CALL}\n{CALL}\n", ids=ids) == [
            TextDelta(" Let me see."), *called(0, "f", '{"a": 1}'), *called(1, "f", '{"a": 1}')
        ]  # fmt: skip

    def test_text_after_a_call_is_kept_apart_from_the_text_before_it(self, ids: bool) -> None:
        assert whole(f"one {CALL} two", ids=ids) == [TextDelta("one"), *called(0, "f", '{"a": 1}'), TextDelta(" two")]

    def test_white_space_around_text_is_no_text_at_its_end_alone(self, ids: bool) -> None:
        assert whole("\n  hi there \n\n", ids=ids) == [TextDelta("\n  hi there")]
        assert whole(" \n", ids=ids) == []

    def test_members_in_any_order_and_spacing(self, ids: bool) -> None:
        odd = '<tool_call>{ "arguments" :{"a":[ 1,{"b":2}]} ,\n"id": 3, "name":"g"}</tool_call>'
        assert whole(odd, ids=ids) == called(0, "g", '{"a":[ 1,{"b":2}]}')

    def test_arguments_stay_as_the_model_wrote_them(self, ids: bool) -> None:
        arguments = '{"a":  "}{\\"\\n\\u00e9" ,"b":1.50}'
        text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
        assert whole(text, ids=ids) == called(0, "f", arguments)

    @pytest.mark.parametrize("members", ['"name": "f"', '"name": "f", "arguments": null'])
    def test_a_call_without_arguments_has_none(self, ids: bool, members: str) -> None:
        assert whole(f"<tool_call>{{{members}}}</tool_call>", ids=ids) == called(0, "f", "{}")

    def test_arguments_written_as_a_string_are_read(self, ids: bool) -> None:
        text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
        assert whole(text, ids=ids) == called(0, "f", '{"a": 1}')

    @pytest.mark.parametrize(
        ("body", "reason", "index"),
        [
            ("no json", "not valid JSON", None),
            ('["f"]', "not a JSON object", None),
            ('{"arguments": {}}', "names no tool", None),
            ('{"name": "", "arguments": {}}', "names no tool", None),
            ('{"name": "f", "arguments": [1]}', "not a JSON object", 0),
            ('{"name": "f", "arguments": {"a": NaN}}', "NaN", 0),
            ('{"name": "f", "arguments": {"a": 1}', "not valid JSON", 0),
            ('{"name": "f", "arguments": {"a": "b\n}}', "not valid JSON", 0),
            ("[" * 5000, "", None),
            # Half a character, which cannot be sent to anybody.
            (r'{"name": "\ud800", "arguments": {}}', "", None),
            (r'{"arguments": {}, "name": "\ud800"}', "", None),
        ],
    )
    def test_a_call_that_is_none_is_told_with_its_text(
        self, ids: bool, body: str, reason: str, index: int | None
    ) -> None:
        *_, broken, after = whole(f"<tool_call>{body}</tool_call> and on", ids=ids)
        assert isinstance(broken, CallBroken)
        assert (broken.text, broken.index) == (f"<tool_call>{body}</tool_call>", index)
        assert reason in broken.reason
        assert after == TextDelta(" and on")

    def test_a_call_that_was_cut_is_broken(self, ids: bool) -> None:
        text = '<tool_call>\n{"name": "f", "arguments": {"a'
        *told, broken = whole(text, ids=ids, stop=False)
        assert told == [CallStarted(0, "f"), CallArguments(0, '{"a')]
        assert broken == CallBroken(text, "the turn ended inside of the call", 0)

    def test_a_whole_call_without_its_closer_counts_if_the_model_ended_the_turn(self, ids: bool) -> None:
        text = CALL.removesuffix("</tool_call>")
        assert whole(text, ids=ids) == called(0, "f", '{"a": 1}')
        assert isinstance(whole(text, ids=ids, stop=False)[-1], CallBroken)

    def test_reasoning_is_told_apart(self, ids: bool) -> None:
        assert whole(f"<think>\nhm \u2603\n</think>\n\nyes {CALL}", ids=ids) == [
            ReasoningDelta("hm \u2603"), TextDelta("yes"), *called(0, "f", '{"a": 1}')
        ]  # fmt: skip

    def test_a_turn_that_the_template_begins_in_reasoning(self, ids: bool) -> None:
        assert whole("hm</think>yes", ids=ids, opening="assistant\n<think>\n") == [
            ReasoningDelta("hm"),
            TextDelta("yes"),
        ]


def test_a_closer_inside_of_an_argument_is_text_where_only_text_shows_it() -> None:
    arguments = '{"a": "</tool_call>"}'
    assert whole(f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>') == called(0, "f", arguments)


def test_a_marker_that_is_a_token_is_seen_as_that_token_alone() -> None:
    spelled = [b"<tool", b"_call>", b" is how a call begins"]
    assert read(spelled, ids=True) == [TextDelta("<tool_call> is how a call begins")]


def test_a_call_that_begins_inside_of_a_call_breaks_the_first() -> None:
    events = whole(f'<tool_call>{{"name": "e"{CALL}', ids=True)
    assert events[:2] == [
        CallStarted(0, "e"),
        CallBroken('<tool_call>{"name": "e"', "another call began inside of it", 0),
    ]
    assert events[2:] == called(1, "f", '{"a": 1}')


def test_the_name_and_the_arguments_are_told_while_they_come() -> None:
    pieces = (b'<tool_call>{"name": "f', b'", "argu', b'ments": {"a": ', b"1}")
    vocabulary = vocabulary_of(pieces, frozenset(), frozenset(), {})
    parser = format_of(Surroundings("<think>", "", PROBE, vocabulary)).form.parser(calls=True)
    assert [parser.push(token) for token in range(4)] == [
        [], [CallStarted(0, "f")], [CallArguments(0, '{"a": ')], [CallArguments(0, "1}")]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (PROBE, "hermes"),
        ('x<tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call><|im_end|>', "hermes"),
        ("", "plain"),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>", "glm"),
        ("<tool_call>f: a is b</tool_call>", "plain"),
        ("<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>", "qwen3-coder"),
    ],
)
def test_a_format_is_known_by_the_template_s_own_call(call: str, name: str) -> None:
    vocabulary = vocabulary_of((b"a",), frozenset(), frozenset(), {})
    assert format_of(Surroundings("", "", call, vocabulary)).form.name == name


def test_a_model_without_calls_writes_text() -> None:
    vocabulary = vocabulary_of((b" a", b" ", b"<tool_call>", b"<end>"), frozenset({3}), frozenset(), {})
    parser = format_of(Surroundings("", "", "", vocabulary)).form.parser(calls=True)
    events = [event for token in (0, 1, 2, 1, 3) for event in parser.push(token)]
    assert merged([*events, *parser.finish()]) == [TextDelta(" a <tool_call>")]


def test_the_embedded_model_s_own_tokens_are_read(embedded_codec: TemplateCodec, embedded_tokenizer: Tokenizer) -> None:
    text = 'ok\n<tool_call>\n{"name": "notes__list", "arguments": {}}\n</tool_call><|im_end|>'
    tokens = embedded_tokenizer.template_tokens(text)
    parser = embedded_codec.parser(calls=True)
    events = [event for token in tokens for event in parser.push(token)] + parser.finish()
    assert merged(events) == [TextDelta("ok"), *called(0, "notes__list", "{}")]
