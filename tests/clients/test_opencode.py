"""opencode, as it is published: a title beside the main requests, its own tools, a session that goes on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import Place, begins_as_told, goes_on, notes, working

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("opencode").resolve()
    file = str(notes(folder))
    edit = {"filePath": file, "oldString": "one", "newString": "two"}
    rules: list[dict[str, Any]] = [
        {"system_contains": "title generator", "text": "A title"},
        {"user_contains": "look again", "text": "Nothing more."},
        {
            "user_contains": "edit it",
            "text": "Let me look.\n\n",
            "calls": [{"name": "read", "arguments": {"filePath": file}}],
        },
        {"tool_contains": "1: one", "calls": [{"name": "edit", "arguments": edit}]},
        {"tool_contains": "applied", "text": "It is edited."},
    ]
    with working("opencode", "opencode-ai", "1.18.33", folder, rules) as place:
        yield place


def test_opencode_edits_a_file_and_continues_its_session(place: Place) -> None:
    printed, said = place.launch("run", "edit it")
    titles = [one for one in said if not one.body.get("tools")]
    edited = [one for one in said if one.body.get("tools")]
    assert place.file.read_text() == "two\n"
    assert "It is edited." in printed
    assert len(titles) == 1
    assert len(edited) == 3
    assert titles[0].session != edited[0].session, "both name one session in a header of theirs, and are two"

    printed, again = place.by_hand("run", "--continue", "look again")
    assert "Nothing more." in printed
    printed, once_more = place.installed("opencode", "run", "--continue", "look again")
    assert "Nothing more." in printed
    begins_as_told(place, edited[0])
    goes_on([*edited, *again, *once_more])


def test_opencode_finds_the_servers_own_tools(place: Place) -> None:
    assert "tenuto_chat" in place.with_mcp("run", "look again")
