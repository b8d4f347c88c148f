"""A session as one document."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidRequest
from tenuto.sessions.items import AssistantItem, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.transfer import export, restore

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
identifiers = st.from_regex(r"\A[a-z_]{1,9}\Z")
calls = st.lists(st.builds(ToolCall, words, words, words, st.booleans()), max_size=2).map(tuple)
items = st.one_of(
    st.builds(SystemItem, words),
    st.builds(UserItem, words),
    st.builds(AssistantItem, words, words, calls, st.booleans()),
    st.builds(
        ToolResultItem,
        words,
        words,
        words,
        st.booleans(),
        st.booleans(),
        st.none() | words,
        st.none() | st.dictionaries(words, st.integers() | words),
    ),
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    session = Session("u", "alice", "s", draw(st.floats(0, 1e10)), 2.0, items=draw(st.lists(items, max_size=4)))
    session.user = draw(st.none() | words)
    session.parent = draw(st.none() | st.builds(Parent, identifiers, st.integers(0, 9)))
    spec = st.builds(ToolSpec, identifiers, words, st.just({"type": "object"}), st.none() | st.booleans())
    session.server_tools = draw(st.none() | st.lists(spec, max_size=2, unique_by=lambda tool: tool.name).map(tuple))
    session.notes = draw(st.dictionaries(words.map(lambda key: "".join(key.split())).filter(bool), words))
    for name in draw(st.sets(words.filter(bool), max_size=2)):
        ledger = session.ledgers[name] = Ledger(name)
        for span in draw(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=3), max_size=len(session.items))):
            ledger.append(span)
    return session


@pytest.mark.slow
@given(sessions())
def test_a_session_survives_the_way_through_json(session: Session) -> None:
    document = json.loads(json.dumps(export(session)))
    again = restore(document, "alice", "s")
    assert again.uid != session.uid
    again.uid = session.uid
    assert again == session
    assert list(again.notes.items()) == list(session.notes.items())


def document(**changes: Any) -> dict[str, Any]:
    session = Session("u", "alice", "s", 1.0, 2.0, items=[UserItem("hi")])
    return export(session) | changes


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"version": 2}, "version"),
        ({"items": [{"kind": "user", "text": "a"}, {"kind": "user"}]}, "items.1"),
        ({"items": [{"kind": "nobody", "text": "a"}]}, "items.0"),
        ({"ledgers": [{"fingerprint": "f", "spans": [[1, -2]]}]}, "ledgers.0.spans.0.1"),
        ({"ledgers": [{"fingerprint": "f", "spans": [[2**32]]}]}, "ledgers.0.spans.0.0"),
        ({"ledgers": [{"fingerprint": "f", "spans": [[1], [2]]}]}, "ledgers.0"),
        ({"ledgers": [{"fingerprint": "f", "spans": []}] * 2}, "ledgers.1"),
        ({"parent": {"uid": "u", "at": 2**31}}, "parent.at"),
        ({"notes": {"a": 1}}, "notes.a"),
        ({"approved": ["everything"]}, "approved"),
        ({"tools": [{"name": "f", "description": "", "parameters": {}, "x": 1}]}, "tools.0.x"),
        ({"id": "i" * 129}, "id"),
        ({"user": "u" * 513}, "user"),
        ({"parent": {"uid": "u" * 129, "at": 1}}, "parent.uid"),
        ({"parent": {"uid": "a/b", "at": 1}}, "parent.uid"),
        ({"ledgers": [{"fingerprint": "f" * 129, "spans": []}]}, "ledgers.0.fingerprint"),
        ({"notes": {"": "text"}}, "notes"),
        ({"notes": {"a\nb": "text"}}, "notes"),
        ({"notes": {" a": "text"}}, "notes"),
        ({"notes": {"k" * 101: "text"}}, "notes"),
        ({"notes": {"k": "t" * 20_001}}, "notes"),
    ],
)
def test_a_document_that_is_not_ours_is_refused_by_its_place(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        restore(document(**changes), "alice", "s")
    assert raised.value.param is not None
    assert raised.value.param.startswith(path)
    assert path in str(raised.value)


def tool(**changes: Any) -> dict[str, Any]:
    return {"name": "f", "description": "", "parameters": {"type": "object"}} | changes


@pytest.mark.parametrize(("kept", "strict"), [({}, None), ({"strict": True}, True), ({"strict": False}, False)])
def test_a_document_keeps_how_its_tools_are_held_to_their_schemas(kept: dict[str, Any], strict: bool | None) -> None:
    """Documents of earlier versions say `strict: true` of every tool."""
    document = {"version": 1, "created_at": 1.0, "updated_at": 2.0, "items": [], "tools": [tool(**kept)]}
    restored = restore(document, "alice", "s")
    assert restored.server_tools == (ToolSpec("f", "", {"type": "object"}, strict),)
    assert restore(export(restored), "alice", "s").server_tools == restored.server_tools


@pytest.mark.parametrize(
    ("tools", "path", "limit"),
    [
        ([tool(name=f"t{number}") for number in range(1001)], "tools", "at most 1000 items"),
        ([tool(description="d" * 65_537)], "tools.0.description", "at most 65536 characters"),
        (
            [tool(name=f"t{number}", description="d" * 60_000) for number in range(40)],
            "tools",
            "descriptions and schemas take more than 2097152 bytes",
        ),
        (
            [tool(parameters={"type": "object", "properties": {f"p{number}": {} for number in range(2501)}})],
            "tools.0.parameters",
            "an object has 2501 properties; at most 2500 are allowed",
        ),
        ([tool(name="a\nb")], "tools.0.name", "match pattern"),
        ([tool(), tool()], "tools.1.name", "there are two tools named 'f'"),
    ],
    ids=["number", "description", "all together", "schema", "name", "twice"],
)
def test_tools_that_a_request_could_not_bring_do_not_come_in_with_a_document(
    tools: list[dict[str, Any]], path: str, limit: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        restore(document(tools=tools), "alice", "s")
    assert raised.value.param == path
    assert limit in str(raised.value)


@pytest.mark.parametrize("document", [None, [], "x", {}])
def test_what_is_no_document_at_all_is_refused(document: Any) -> None:
    with pytest.raises(InvalidRequest):
        restore(document, "alice", "s")


def test_an_import_brings_no_approvals_and_no_run() -> None:
    session = Session("u", "alice", "s", 1.0, 2.0, approved=frozenset({"shell"}), open_run="r", implicit=True)
    again = restore(export(session), "bob", "t")
    assert (again.principal, again.id, again.implicit) == ("bob", "t", False)
    assert (again.approved, again.open_run) == (frozenset(), None)
