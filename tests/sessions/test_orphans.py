"""Results whose calls a client has dropped from its history become notes, the same ones each time."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.orphans import adopted
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.splice import plan
from tenuto.sessions.visible import VisibleHistory

ASKS = AssistantItem(calls=(ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")))
A, B, LOST = ToolResultItem("a", "look", "1"), ToolResultItem("b", "look", "2"), ToolResultItem("z", "find", "lost")
NOTE = UserItem("[result of an earlier call of find]\nlost")
HI, SAID = UserItem("hi"), AssistantItem("said")

items = st.lists(
    st.sampled_from([SystemItem("s"), HI, SAID, ASKS, A, B, LOST, ToolResultItem("y", "", "too")]), max_size=8
)


def test_a_result_without_its_call_is_a_note() -> None:
    assert adopted([SystemItem("s"), LOST, HI]) == [SystemItem("s"), NOTE, HI]


def test_results_beside_it_stay_together_before_the_note() -> None:
    assert adopted([HI, ASKS, A, LOST, B, SAID]) == [HI, ASKS, A, B, NOTE, SAID]


def test_several_are_one_note() -> None:
    picture = Attachment("image", "image/png", data="aGk=")
    nameless = ToolResultItem("y", "", "too", attachments=(picture,))
    both = "[result of an earlier call of find]\nlost\n\n[result of an earlier call]\ntoo"
    assert adopted([LOST, nameless]) == [UserItem(both, (picture,))]


@given(items)
def test_a_note_depends_on_what_comes_before_it_alone(conversation: list[Item]) -> None:
    """So a client that repeats its history and goes on repeats the notes."""
    whole = adopted([*conversation, SAID])
    assert whole[-1] == SAID
    assert adopted([*conversation, SAID, HI, LOST])[: len(whole)] == whole


@given(items)
def test_where_all_calls_are_there_nothing_changes(conversation: list[Item]) -> None:
    called: set[str] = set()
    kept: list[Item] = []
    for item in conversation:
        if isinstance(item, AssistantItem):
            called.update(call.id for call in item.calls)
        if not isinstance(item, ToolResultItem) or item.call_id in called:
            kept.append(item)
    assert adopted(kept) == kept


def test_a_trimmed_history_goes_on_and_keeps_its_prefix() -> None:
    trimmed: list[Item] = [SystemItem("s"), LOST, HI]
    first = plan("auto", [], VisibleHistory(), RequestItems(trimmed))
    assert first.new == (SystemItem("s"), NOTE, HI)
    session: list[Item] = [*first.new, SAID]
    again = plan("auto", session, VisibleHistory(), RequestItems([*trimmed, SAID, HI]))
    assert (again.keep, again.new, again.miss_reason) == (len(session), (HI,), None)
