"""A few words find the tools that they are about, however tools are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.sessions.items import ToolSpec
from tenuto.tools.search import search


def tool(name: str, description: str = "", **parameters: str) -> ToolSpec:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return ToolSpec(name, description, {"type": "object", "properties": properties})


TOOLS = [
    tool("github__createIssue", "Open an issue in a repository", title="Its title", body="What it says"),
    tool("github__list_pull_requests", "List the pull requests of a repository"),
    tool("files__read_file", "Read a text file", path="Where it lies"),
    tool("files__delete", "Remove a file", path="Where it lies"),
    tool("mail__send", "Send a message to people", recipients="Their addresses"),
    tool("weather__forecast", "The weather of the next days", city="The town"),
    tool("wetter__vorhersage", "Das Wetter der nächsten Tage", ort="Die Stadt, auch für Zürich"),
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "github__createIssue"),
        ("creating issues", "github__createIssue"),
        ("pull request", "github__list_pull_requests"),
        ("what will the weather be?", "weather__forecast"),
        ("zurich", "wetter__vorhersage"),
        ("e-mail addresses of recipients", "mail__send"),
        ("readFile", "files__read_file"),
        ("mail__send", "mail__send"),
        ("please use files__delete now", "files__delete"),
    ],
)
def test_words_find_what_they_are_about(query: str, best: str) -> None:
    assert search(TOOLS, query, 5)[0].name == best


def test_nothing_is_found_where_nothing_fits() -> None:
    assert search(TOOLS, "quantum chromodynamics", 5) == []
    assert search(TOOLS, "?!", 5) == []
    assert search([], "weather", 5) == []


@given(st.text(max_size=60), st.integers(1, 9))
def test_any_text_is_a_query(query: str, most: int) -> None:
    found = search(TOOLS, query, most)
    assert len(found) <= most
    assert len({one.name for one in found}) == len(found)


@given(st.sampled_from(TOOLS))
def test_a_tool_is_found_by_its_own_words(one: ToolSpec) -> None:
    assert one in search(TOOLS, one.name, 1)
    assert one in search(TOOLS, one.description, 3)
