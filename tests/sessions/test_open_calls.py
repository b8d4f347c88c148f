"""Calls and results of clients that send no ids find each other."""

import pytest

from tenuto.errors import InvalidRequest
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.splice import plan
from tenuto.sessions.visible import VisibleHistory, canonical

HI = UserItem("hi")
KEPT = AssistantItem(calls=(ToolCall("a", "look", "{}"), ToolCall("b", "find", "{}"), ToolCall("c", "find", "{}")))
SENT = AssistantItem(calls=(ToolCall("", "look", "{}"), ToolCall("", "find", "{}"), ToolCall("", "find", "{}")))


def result(name: str, text: str, id: str = "") -> ToolResultItem:
    return ToolResultItem(id, name, text)


def joined(session: list[Item], request: list[Item], mode: str = "auto") -> list[Item]:
    decision = plan(mode, session, VisibleHistory(), RequestItems(request))
    return [*session[: decision.keep], *decision.new]


@pytest.mark.parametrize("mode", ["auto", "append"])
def test_results_without_ids_answer_the_calls_of_the_tools_that_they_name(mode: str) -> None:
    results: list[Item] = [result("find", "1"), result("look", "2"), result("find", "3")]
    history: list[Item] = [HI, SENT] if mode == "auto" else []
    assert joined([HI, KEPT], [*history, *results], mode) == [
        HI,
        KEPT,
        result("look", "2", "a"),
        result("find", "1", "b"),
        result("find", "3", "c"),
    ]


def test_results_without_ids_and_names_answer_the_calls_in_their_order() -> None:
    results: list[Item] = [result("", text) for text in "123"]
    found = joined([HI, KEPT], [HI, SENT, *results])[2:]
    assert found == [result("look", "1", "a"), result("find", "2", "b"), result("find", "3", "c")]


def test_a_history_without_ids_gets_some_that_differ() -> None:
    history: list[Item] = [HI, SENT, *(result("", text) for text in "123"), AssistantItem("so"), HI]
    kept = joined([], [*history, SENT, result("look", "4"), result("find", "5"), result("find", "6")])
    calls = [call.id for item in kept if isinstance(item, AssistantItem) for call in item.calls]
    assert len(set(calls)) == 6
    assert [item.call_id for item in kept if isinstance(item, ToolResultItem)] == calls
    assert VisibleHistory().digest(kept[: len(history)]) == VisibleHistory().digest(history)


def test_a_history_that_repeats_it_without_ids_keeps_all_of_it() -> None:
    session: list[Item] = [HI, KEPT, result("look", "1", "a"), result("find", "2", "b"), result("find", "3", "c")]
    said: list[Item] = [HI, SENT, result("look", "1"), result("find", "2"), result("find", "3")]
    decision = plan(
        "auto", [*session, AssistantItem("so")], VisibleHistory(), RequestItems([*said, AssistantItem("so"), HI])
    )
    assert (decision.keep, decision.new, decision.miss_reason) == (6, (HI,), None)


def test_a_result_without_an_id_takes_the_place_of_what_the_runtime_wrote_for_it() -> None:
    gone = ToolResultItem("a", "look", "the client went on", server=True)
    one = AssistantItem(calls=(ToolCall("a", "look", "{}"),))
    sent = AssistantItem(calls=(ToolCall("", "look", "{}"),))
    assert joined([HI, one, gone], [HI, sent, result("look", "1")]) == [HI, one, result("look", "1", "a")]


def test_a_result_without_an_id_and_a_call_is_a_note() -> None:
    assert canonical(RequestItems([HI, AssistantItem("so"), result("look", "1")]).canonical)[2:] == [
        UserItem("[result of an earlier call of look]\n1")
    ]
    with pytest.raises(InvalidRequest, match="no open tool call"):
        joined([HI, AssistantItem("so")], [result("look", "1")], "append")


def test_more_results_than_calls_leave_the_others_as_notes() -> None:
    one = AssistantItem(calls=(ToolCall("", "look", "{}"),))
    found = RequestItems([HI, one, result("look", "1"), result("look", "2")]).canonical
    assert found[2:] == [result("look", "1"), UserItem("[result of an earlier call of look]\n2")]
