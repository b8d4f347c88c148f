"""Which session a request goes on with."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions import match
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, UserItem
from tenuto.sessions.visible import digests, visible

HI, HO, NEW = UserItem("hi"), AssistantItem("ho"), UserItem("new")

plain = st.lists(
    st.one_of(
        st.builds(UserItem, st.sampled_from(["hi", "you"])), st.builds(AssistantItem, st.sampled_from(["ho", "me"]))
    ),
    max_size=6,
)


def test_a_first_request_looks_for_no_session() -> None:
    assert match.wanted([SystemItem("s"), HI]) == []
    assert match.wanted([HI, HO]) == []


@given(plain, plain)
def test_a_session_is_looked_for_exactly_where_it_fits(session: list[Item], request: list[Item]) -> None:
    """For items without reasoning and call ids the digest alone decides."""
    found = digests(visible(session))
    assert bool(found and found[-1] in match.wanted(request)) == match.fits(session, request)


@given(plain)
def test_the_longest_session_is_looked_for_first(request: list[Item]) -> None:
    marks = digests(visible(request))
    wanted = match.wanted(request)
    assert wanted == [mark for mark in reversed(marks[:-1]) if mark in wanted]


def test_a_session_fits_only_if_all_of_it_is_repeated_and_more_comes() -> None:
    assert match.fits([HI, HO], [HI, HO, NEW])
    assert not match.fits([HI, HO], [HI, HO])
    assert not match.fits([HI, HO, NEW], [HI, HO, UserItem("other")])
    assert not match.fits([HI], [HI, NEW])
    assert not match.fits([], [HI, HO, NEW])


def test_call_ids_decide_where_the_digest_cannot() -> None:
    def asking(id: str) -> AssistantItem:
        return AssistantItem("", "", (ToolCall(id, "f", "{}"),))

    assert digests(visible([HI, asking("1")])) == digests(visible([HI, asking("2")]))
    assert match.fits([HI, asking("1")], [HI, asking("1"), NEW])
    assert not match.fits([HI, asking("2")], [HI, asking("1"), NEW])
