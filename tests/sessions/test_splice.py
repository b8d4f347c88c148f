"""How a request's items join a session's."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenuto.errors import InvalidRequest
from tenuto.sessions import splice as joining
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.splice import Splice
from tenuto.sessions.visible import VisibleHistory, visible

SYSTEM, HI, HO = SystemItem("be kind"), UserItem("hi"), AssistantItem("ho")
ASK = AssistantItem("", "", (ToolCall("c1", "ask", "{}"), ToolCall("c2", "tell", "{}")))
ONE, TWO = ToolResultItem("c1", "ask", "1"), ToolResultItem("c2", "tell", "2")


def plan(mode: str, session: Sequence[Item], request: Sequence[Item]) -> Splice:
    return joining.plan(mode, session, VisibleHistory(), RequestItems(request))


def splice(session: Sequence[Item], request: Sequence[Item]) -> Splice:
    return joining.splice(session, VisibleHistory(), RequestItems(request))


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Item]:
    """One whole turn as a run leaves it: rounds with server calls, client calls and their results, an answer."""
    items: list[Item] = [UserItem(draw(st.sampled_from(["hi", "more"])))]
    for round_ in range(draw(st.integers(0, 3))):
        calls = tuple(
            ToolCall(f"{number}.{round_}.{index}", "f", "{}", server)
            for index, server in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=2)))
        )
        items.append(AssistantItem(draw(st.sampled_from(["", "look"])), draw(st.sampled_from(["", "hm"])), calls))
        items += [ToolResultItem(call.id, "f", "result", server=call.server) for call in calls]
    return [*items, AssistantItem(draw(st.sampled_from(["done", "fine"])))]


@st.composite
def sessions(draw: st.DrawFn) -> list[Item]:
    items: list[Item] = draw(st.sampled_from([[], [SYSTEM]]))
    return [*items, *(item for number in range(draw(st.integers(1, 3))) for item in draw(turns(number)))]


def seen(session: list[Item]) -> list[Item]:
    return [one.item for one in visible(session)]


@pytest.mark.slow
@given(sessions())
def test_a_repeated_history_keeps_everything_and_only_appends(session: list[Item]) -> None:
    new = UserItem("and now?")
    assert plan("auto", session, [*seen(session), new]) == Splice(len(session), (new,))


@pytest.mark.slow
@given(sessions(), st.data())
def test_a_change_keeps_exactly_what_stands_before_it(session: list[Item], data: st.DataObject) -> None:
    found = visible(session)
    at = data.draw(st.integers(0, len(found) - 1))
    assume(not isinstance(found[at].item, ToolResultItem))
    request = [*seen(session)[:at], UserItem("something else")]
    decision = splice(session, request)
    assert (decision.keep, decision.new) == (found[at].start, (request[-1],))
    assert decision.miss_reason is not None
    assert decision.miss_reason.startswith(f"item {at} ({found[at].item.kind}) differs: ")


@pytest.mark.slow
@given(sessions(), st.data())
def test_a_splice_shows_the_client_what_it_sent(session: list[Item], data: st.DataObject) -> None:
    mine = seen(session)
    request: list[Item] = [
        *mine[: data.draw(st.integers(0, len(mine)))],
        UserItem("a"),
        AssistantItem("b"),
        UserItem("c"),
    ]
    decision = splice(session, request)
    assert seen([*session[: decision.keep], *decision.new]) == request


@pytest.mark.slow
@given(sessions())
def test_a_body_without_an_assistant_item_is_appended(session: list[Item]) -> None:
    assert plan("auto", session, [HI]) == Splice(len(session), (HI,))


def test_a_session_without_an_assistant_item_takes_any_body_as_the_history() -> None:
    assert plan("auto", [], [SYSTEM, HI]) == Splice(0, (SYSTEM, HI))
    assert plan("auto", [HI], [HI]) == Splice(1, ())
    assert plan("auto", [HI], [UserItem("no")]) == Splice(0, (UserItem("no"),), "item 0 (user) differs: text")


def test_the_mode_overrides_the_rule() -> None:
    session: list[Item] = [HI, HO]
    assert plan("append", session, [HO, HI]) == Splice(2, (HO, HI))
    assert plan("replace", session, [HI]) == Splice(1, (), "item 1 (assistant) is not in the request")
    assert plan("append", [], [SYSTEM, HI]) == Splice(0, (SYSTEM, HI))


def test_an_equal_system_item_is_left_out_of_an_appended_body() -> None:
    assert plan("auto", [SYSTEM, HI, HO], [SYSTEM, HI]) == Splice(3, (HI,))


@pytest.mark.parametrize(
    ("session", "request_"),
    [
        ([SYSTEM, HI, HO], [SystemItem("be rude"), HI]),
        ([HI, HO], [SYSTEM, HI]),
    ],
)
def test_a_changed_system_item_cannot_be_appended(session: list[Item], request_: list[Item]) -> None:
    with pytest.raises(InvalidRequest, match="system message") as raised:
        plan("auto", session, request_)
    assert raised.value.param == "messages"


def test_a_system_item_that_comes_later_is_appended_where_it_stands() -> None:
    assert plan("auto", [SYSTEM, HI, HO], [HI, SYSTEM]) == Splice(3, (HI, SYSTEM))


def test_appended_results_are_named_and_ordered_by_their_calls() -> None:
    given_: list[Item] = [ToolResultItem("c2", "", "2"), ToolResultItem("c1", "", "1")]
    assert plan("auto", [HI, ASK], given_) == Splice(2, (ONE, TWO))
    assert plan("auto", [HI, ASK, ONE], given_[:1]) == Splice(3, (TWO,))


@pytest.mark.parametrize(
    ("session", "request_", "name"),
    [
        ([HI, ASK], [ToolResultItem("c9", "", "?")], "c9"),
        ([HI, ASK, ONE], [ToolResultItem("c1", "", "again")], "c1"),
        ([HI, ASK], [ONE, ONE], "c1"),
        ([HI, ASK, ONE, TWO, HO], [ONE], "c1"),
        ([HI, AssistantItem("", "", (ToolCall("s", "f", "{}", True),))], [ToolResultItem("s", "", "mine")], "s"),
    ],
)
def test_a_result_for_no_open_call_is_refused_by_its_id(session: list[Item], request_: list[Item], name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{name}'"):
        plan("auto", session, request_)


@pytest.mark.parametrize(
    ("mode", "session", "request_"),
    [
        ("auto", [], []),
        ("auto", [HI, HO], []),
        ("auto", [HI, HO], [HI, HO]),
        ("auto", [SYSTEM, HI, HO], [SYSTEM]),
        ("replace", [SYSTEM, HI, HO], [SYSTEM]),
    ],
)
def test_a_request_that_leaves_nothing_to_answer_is_refused(
    mode: str, session: list[Item], request_: list[Item]
) -> None:
    with pytest.raises(InvalidRequest, match="nothing to answer"):
        plan(mode, session, request_)


def test_the_last_turn_can_be_asked_for_again() -> None:
    session: list[Item] = [HI, HO, UserItem("more"), AssistantItem("so")]
    assert plan("auto", session, session[:3]) == Splice(3, (), "item 3 (assistant) is not in the request")


def test_an_assistant_item_of_the_client_is_taken_as_it_is() -> None:
    made_up = AssistantItem("I said", "thinking", (ToolCall("x", "f", "{}"),))
    result = ToolResultItem("x", "f", "ok")
    assert plan("auto", [], [HI, made_up, ToolResultItem("x", "", "ok")]) == Splice(0, (HI, made_up, result))


def test_a_late_result_takes_the_place_of_what_the_runtime_wrote_for_it() -> None:
    server = ToolCall("s", "look", "{}", True)
    asking = AssistantItem("", "", (ToolCall("c1", "ask", "{}"), server))
    looked = ToolResultItem("s", "look", "found", server=True)
    stand_in = ToolResultItem("c1", "ask", "expired", is_error=True, server=True)
    shown = AssistantItem("", "", (ToolCall("c1", "ask", "{}"),))
    session: list[Item] = [HI, asking, stand_in, looked]
    assert plan("auto", session, [HI, shown, ONE]) == Splice(2, (ONE, looked))
    went_on: list[Item] = [*session, UserItem("never mind"), HO]
    decision = plan("auto", went_on, [HI, shown, ONE])
    assert (decision.keep, decision.new) == (2, (ONE, looked))
