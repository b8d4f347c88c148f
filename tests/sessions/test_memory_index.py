"""Sessions in memory only are found by what requests repeat of them, as stored ones are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.match import prefix_digests
from tenuto.sessions.memory_index import MemoryIndex
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Session

HI, HO = UserItem("hi"), AssistantItem("ho")


def session(uid: str, *items: Item, user: str | None = None, principal: str = "alice") -> Session:
    return Session(uid, principal, f"id-{uid}", 0.0, 0.0, stored=False, user=user, items=[*items])


def find(index: MemoryIndex, *items: Item, user: str | None = None, principal: str = "alice") -> list[tuple[str, int]]:
    return index.candidates(principal, user, prefix_digests(RequestItems(items)), 16)


def test_a_session_is_found_by_its_whole_history_and_by_its_turns() -> None:
    index = MemoryIndex()
    index.put(session("a", HI, HO, UserItem("and?"), AssistantItem("so")))
    assert find(index, HI, HO, UserItem("and?"), AssistantItem("so"), HI) == [("a", 4)]
    assert find(index, HI, HO, UserItem("or?")) == [("a", 2)]
    assert find(index, HI, AssistantItem("no"), HI) == []
    assert find(index, HI, HO, UserItem("or?"), user="u") == []
    assert find(index, HI, HO, UserItem("or?"), principal="bob") == []


def test_what_was_cut_or_dropped_is_not_found() -> None:
    index = MemoryIndex()
    one = session("a", HI, HO, UserItem("and?"), AssistantItem("so"))
    index.put(one)
    one.items[2:] = [UserItem("or?"), AssistantItem("else")]
    index.put(one)
    assert find(index, HI, HO, UserItem("and?"), AssistantItem("so"), HI) == [("a", 2)]
    assert find(index, HI, HO, UserItem("or?"), AssistantItem("else"), HI) == [("a", 4)]
    index.drop("a")
    assert find(index, HI, HO, HI) == []


ITEMS = st.lists(
    st.sampled_from(
        [
            HI,
            UserItem("b"),
            HO,
            AssistantItem("c"),
            AssistantItem("", "", (ToolCall("1", "f", "{}"),)),
            AssistantItem("", "", (ToolCall("2", "s", "{}", server=True),)),
            ToolResultItem("1", "f", "x"),
            ToolResultItem("2", "s", "y", server=True),
        ]
    ),
    max_size=8,
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), ITEMS), max_size=5))
def test_an_index_that_grew_is_one_that_was_made_at_once(steps: list[tuple[int, list[Item]]]) -> None:
    grown, one = MemoryIndex(), session("a")
    for keep, more in steps:
        one.items[keep:] = more
        grown.put(one)
    fresh = MemoryIndex()
    fresh.put(session("a", *one.items))
    for end in range(len(one.items) + 1):
        assert find(grown, *one.items[:end], HI) == find(fresh, *one.items[:end], HI)
    grown.drop("a")
    assert (grown._entries, grown._wholes, grown._turns) == ({}, {}, {}), "nothing is left"
