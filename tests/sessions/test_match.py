"""Which session a request goes on with."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions import match
from tenuto.sessions.ids import new_call_id
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Session
from tenuto.sessions.visible import VisibleHistory

HI, HO, NEW = UserItem("hi"), AssistantItem("ho"), UserItem("new")

plain = st.lists(
    st.one_of(
        st.builds(UserItem, st.sampled_from(["hi", "you"])), st.builds(AssistantItem, st.sampled_from(["ho", "me"]))
    ),
    max_size=6,
)


def wanted(request: list[Item]) -> list[str]:
    return match.prefix_digests(RequestItems(request))


def fits(session: list[Item], request: list[Item], at: int | None = None) -> bool:
    return match.fits(session, VisibleHistory(), RequestItems(request), at)


def test_a_first_request_looks_for_no_session() -> None:
    assert wanted([SystemItem("s"), HI]) == []
    assert wanted([HI, HO]) == []


@given(plain, plain)
def test_a_session_is_looked_for_exactly_where_it_fits(session: list[Item], request: list[Item]) -> None:
    """For items without reasoning and calls the digest alone decides."""
    assert (VisibleHistory().digest(session) in wanted(request)) == fits(session, request)


@given(plain)
def test_the_longest_session_is_looked_for_first(request: list[Item]) -> None:
    history = VisibleHistory()
    history.follow(request)
    marks = [digest.hex() for digest in history.digests]
    looked_for = wanted(request)
    assert looked_for == [mark for mark in reversed(marks[:-1]) if mark in looked_for]


def test_a_session_fits_only_if_all_of_it_is_repeated_and_more_comes() -> None:
    assert fits([HI, HO], [HI, HO, NEW])
    assert not fits([HI, HO], [HI, HO])
    assert not fits([HI, HO, NEW], [HI, HO, UserItem("other")])
    assert not fits([HI], [HI, NEW])
    assert not fits([], [HI, HO, NEW])


def asking(id: str, arguments: str = "{}") -> AssistantItem:
    return AssistantItem("", "", (ToolCall(id, "f", arguments),))


def test_a_call_that_came_back_with_other_arguments_is_told_by_its_id() -> None:
    made = new_call_id()
    written, repeated = asking(made, '{"command": "cd /here && ls"}'), asking(made, '{"command": "ls", "all": false}')
    assert VisibleHistory().digest([HI, written]) in wanted([HI, repeated, NEW])
    assert fits([HI, written], [HI, repeated, NEW])
    assert not fits([HI, written], [HI, asking(new_call_id(), '{"command": "ls"}'), NEW])
    assert not fits([HI, asking("call_1")], [HI, asking("call_1", '{"all": false}'), NEW]), "clients count so"


def test_calls_decide_where_the_digest_cannot() -> None:

    assert VisibleHistory().digest([HI, asking("1")]) == VisibleHistory().digest([HI, asking("2")])
    assert fits([HI, asking("1")], [HI, asking("1"), NEW])
    assert not fits([HI, asking("2")], [HI, asking("1"), NEW])
    assert not fits([HI, asking("", "[1]")], [HI, asking("", "[2]"), NEW])


def candidate(uid: str, hint: str | None = None) -> tuple[Session, int]:
    return Session(uid, "p", uid, 0.0, 0.0, hint=hint, items=[HI, HO]), 2


def chosen(*candidates: tuple[Session, int], hint: str | None) -> str | None:
    found = match.choose(candidates, RequestItems([HI, HO, NEW]), hint)
    return None if found is None else found[0].uid


def test_where_several_sessions_fit_the_hint_decides() -> None:
    assert chosen(candidate("a", "x"), candidate("b", "y"), hint="y") == "b"
    assert chosen(candidate("a", "x"), candidate("b"), candidate("c"), hint="x") == "a"


def test_a_hint_that_decides_nothing_leaves_it_undecided() -> None:
    assert chosen(candidate("a", "x"), candidate("b", "x"), hint="x") is None
    assert chosen(candidate("a", "x"), candidate("b", "y"), hint="z") is None
    assert chosen(candidate("a"), candidate("b"), hint=None) is None


def test_a_hint_keeps_nobody_from_the_only_session_that_fits() -> None:
    """Clients send one hint for several conversations, and none for others."""
    for mine, theirs in (("x", "y"), (None, "y"), ("x", None)):
        assert chosen(candidate("a", mine), hint=theirs) == "a"


SERVER = AssistantItem("Let me see. ", calls=(ToolCall("s1", "look", "{}", server=True),))
LOOKED = ToolResultItem("s1", "look", "found", server=True)


def test_a_place_within_what_a_client_saw_as_one_is_a_place_too() -> None:
    session: list[Item] = [HI, SERVER, LOOKED, AssistantItem("Here.")]
    assert fits(session, [HI, AssistantItem("Let me see. "), NEW], at=3)
    assert not fits(session, [HI, AssistantItem("Let me see. "), NEW])
    assert fits(session, [HI, AssistantItem("Let me see. Here."), NEW])


@given(plain, plain, st.integers(0, 6))
def test_the_beginning_of_a_session_fits_as_a_session_of_its_own(
    session: list[Item], request: list[Item], at: int
) -> None:
    assert fits(session, request, at) == fits(session[:at], request)
