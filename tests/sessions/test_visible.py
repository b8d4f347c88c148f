"""What a client saw of a session."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.ids import new_call_id
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
    item_from_json,
    item_to_json,
)
from tenuto.sessions.visible import VisibleHistory, canonical, canonical_arguments, difference, visible

SERVER = ToolCall("s1", "look", "{}", server=True)
CLIENT = ToolCall("c1", "ask", '{"q": 1}')
OURS = ToolCall(new_call_id(), "ask", '{"q": 1}')
LOOKED = ToolResultItem("s1", "look", "found", server=True)
ASKED = ToolResultItem("c1", "ask", "yes")

few = st.sampled_from(["", "a", "b"])
calls = st.builds(ToolCall, st.sampled_from(["c1", "c2"]), st.just("f"), st.sampled_from(["{}", "null"]), st.booleans())
items = st.one_of(
    st.builds(SystemItem, few),
    st.builds(UserItem, few),
    st.builds(NoteItem, few),
    st.builds(AssistantItem, few, few, st.lists(calls, max_size=2, unique_by=lambda call: call.id).map(tuple)),
    st.builds(ToolResultItem, st.sampled_from(["c1", "c2"]), st.just("f"), few, server=st.booleans()),
)
histories = st.lists(items, max_size=8)


def seen(history: list[Item]) -> list[Item]:
    return [one.item for one in visible(history)]


def test_rounds_that_called_only_the_server_are_one_assistant_item() -> None:
    history: list[Item] = [
        UserItem("hi"),
        AssistantItem("Let me see. ", "hm", (SERVER,)),
        LOOKED,
        AssistantItem("", "", (SERVER, SERVER)),
        LOOKED,
        LOOKED,
        AssistantItem("Here.", "ah", (CLIENT,)),
        ASKED,
        AssistantItem("Done."),
    ]
    found = visible(history)
    assert [one.item for one in found] == [
        UserItem("hi"),
        AssistantItem("Let me see. Here.", "hmah", (CLIENT,)),
        ASKED,
        AssistantItem("Done."),
    ]
    assert [(one.start, one.end) for one in found] == [(0, 1), (1, 7), (7, 8), (8, 9)]


def test_rounds_around_a_note_are_one_assistant_item() -> None:
    note = NoteItem("again")
    history: list[Item] = [
        UserItem("hi"),
        AssistantItem("<call>"),
        note,
        AssistantItem("", "", (SERVER,)),
        LOOKED,
        AssistantItem("Here."),
        UserItem("thanks"),
        AssistantItem("<call>"),
        note,
    ]
    found = visible(history)
    assert [one.item for one in found] == [
        UserItem("hi"),
        AssistantItem("<call>Here."),
        UserItem("thanks"),
        AssistantItem("<call>"),
    ]
    assert [(one.start, one.end) for one in found] == [(0, 1), (1, 6), (6, 7), (7, 9)]


def test_a_mixed_round_shows_the_clients_calls_and_ends_the_item() -> None:
    history: list[Item] = [AssistantItem("x", "", (SERVER, CLIENT)), LOOKED, ASKED, AssistantItem("y")]
    assert seen(history) == [AssistantItem("x", "", (CLIENT,)), ASKED, AssistantItem("y")]
    assert visible(history)[0].end == 2


def test_a_result_that_the_runtime_wrote_for_a_client_call_is_hidden() -> None:
    history: list[Item] = [
        AssistantItem("", "", (CLIENT,)),
        ToolResultItem("c1", "ask", "not executed: the client went on", server=True),
        UserItem("never mind"),
    ]
    assert seen(history) == [AssistantItem("", "", (CLIENT,)), UserItem("never mind")]


def test_an_assistant_item_without_text_and_calls_is_hidden() -> None:
    assert seen([UserItem("a"), AssistantItem(""), UserItem("b")]) == [UserItem("a"), UserItem("b")]


@given(histories)
def test_visible_items_cover_the_history_in_order(history: list[Item]) -> None:
    found = visible(history)
    assert [one.start for one in found[1:]] == [one.end for one in found[:-1]]
    if found:
        assert found[-1].end == len(history)
    hidden = history[: found[0].start] if found else history
    assert not seen(list(hidden))


@given(histories)
def test_what_was_seen_is_seen_again(history: list[Item]) -> None:
    once = seen(history)
    assert seen(once) == once


@given(histories, histories)
def test_digests_agree_with_equality(one: list[Item], other: list[Item]) -> None:
    """Equal digests and no difference mean the same, as long as neither reasoning nor what is in calls differs."""
    for mine, theirs in zip(visible(one), visible(other), strict=False):
        if difference(mine.item, theirs.item) is None:
            assert VisibleHistory().digest([mine.item]) == VisibleHistory().digest([theirs.item])
        elif difference(mine.item, theirs.item) in ("kind", "text", "calls"):
            assert VisibleHistory().digest([mine.item]) != VisibleHistory().digest([theirs.item])


@given(histories)
def test_a_digest_names_all_items_before_it(history: list[Item]) -> None:
    followed = VisibleHistory()
    followed.follow(history)
    whole = seen(history)
    assert [VisibleHistory().digest(whole[: count + 1]) for count in range(len(whole))] == [
        one.hex() for one in followed.digests
    ]
    assert len(set(followed.digests)) == len(followed.digests)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 10), histories), max_size=5))
def test_a_trace_follows_a_history_that_grows_and_is_cut(steps: list[tuple[int, list[Item]]]) -> None:
    followed, history = VisibleHistory(), list[Item]()
    for keep, new in steps:
        history = [*history[:keep], *new]
        anew = VisibleHistory()
        assert followed.digest(history) == anew.digest(history)
        assert followed.digests == anew.digests


@pytest.mark.parametrize(
    ("stored", "given_", "what"),
    [
        (UserItem("a"), UserItem("a"), None),
        (UserItem("a"), UserItem("a "), "text"),
        (UserItem("a"), SystemItem("a"), "kind (system)"),
        (AssistantItem("a", "thought"), AssistantItem("a"), None),
        (AssistantItem("a", "thought"), AssistantItem("a", "thought"), None),
        (AssistantItem("a", "thought"), AssistantItem("a", "other"), "reasoning"),
        (AssistantItem("a", incomplete=True), AssistantItem("a"), None),
        (AssistantItem("", "", (CLIENT,)), AssistantItem("", "", (ToolCall("", "ask", '{"q":1.0}'),)), None),
        (AssistantItem("", "", (CLIENT,)), AssistantItem("", "", (ToolCall("x", "ask", '{"q":1}'),)), "call id of ask"),
        (AssistantItem("", "", (CLIENT,)), AssistantItem("", "", (ToolCall("c1", "ask", "{}"),)), "arguments of ask"),
        (AssistantItem("", "", (OURS,)), AssistantItem("", "", (replace(OURS, arguments="{}"),)), None),
        (AssistantItem("", "", (OURS,)), AssistantItem("", "", (ToolCall("", "ask", "{}"),)), "arguments of ask"),
        (AssistantItem("", "", (OURS,)), AssistantItem("", "", (replace(OURS, name="tell"),)), "calls"),
        (AssistantItem("", "", (CLIENT,)), AssistantItem("a"), "text"),
        (AssistantItem("a", "", (CLIENT,)), AssistantItem("a"), "calls"),
        (ASKED, ToolResultItem("", "", "yes"), None),
        (ASKED, ToolResultItem("c2", "ask", "yes"), "call id"),
        (ASKED, ToolResultItem("c1", "ask", "yes", is_error=True), "is_error"),
    ],
)
def test_a_client_repeats_an_item_or_differs_in_something(stored: Item, given_: Item, what: str | None) -> None:
    assert difference(stored, given_) == what


@given(
    st.dictionaries(st.text(max_size=3), st.integers() | st.none() | st.booleans() | st.text(max_size=3), max_size=4)
)
def test_arguments_are_equal_however_their_json_is_written(value: dict[str, Any]) -> None:
    ways = [
        json.dumps(value),
        json.dumps(value, indent=2, ensure_ascii=False),
        json.dumps(dict(reversed(value.items()))),
    ]
    assert len({canonical_arguments(way) for way in ways}) == 1


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("", "{}", True),
        ("null", "{}", True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": 0.1}', '{"a": 1e-1}', True),
        ('{"a": ', '{"a": ', True),
        ('{"a": ', '{"a":', False),
        ("[" * 100_000, "[" * 100_000, True),
    ],
)
def test_arguments_are_compared_as_json(one: str, other: str, equal: bool) -> None:
    assert (canonical_arguments(one) == canonical_arguments(other)) is equal


def test_results_stand_in_the_order_of_their_calls_and_have_their_names() -> None:
    asking = AssistantItem("", "", (ToolCall("1", "a", ""), ToolCall("2", "b", "")))
    given_: list[Item] = [asking, ToolResultItem("2", "", "y"), ToolResultItem("1", "", "x"), UserItem("u")]
    assert canonical(given_) == [asking, ToolResultItem("1", "a", "x"), ToolResultItem("2", "b", "y"), UserItem("u")]


def test_what_a_message_carries_is_content() -> None:
    image = Attachment("image", "image/png", data="aGk=")
    plain, seen, other = UserItem("x"), UserItem("x", (image,)), UserItem("x", (replace(image, data="aG8="),))
    assert difference(seen, UserItem("x", (image,))) is None
    assert difference(plain, seen) == difference(seen, other) == "attachments"
    assert len({VisibleHistory().digest([item]) for item in (plain, seen, other)}) == 3
    assert item_from_json(item_to_json(seen)) == seen


def test_items_kept_before_they_could_carry_anything_are_read() -> None:
    assert item_from_json('{"text": "x", "kind": "user"}') == UserItem("x")
