"""Claude Code, as it is published: calls of its own tools, repeated in other words, and a session that goes on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import Place, begins_as_told, goes_on, notes, working

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("claude").resolve()
    file = str(notes(folder))
    edit = {"file_path": file, "old_string": "one", "new_string": "two  \nthree "}
    rules: list[dict[str, Any]] = [
        {
            "user_matches": r"edit it\Z",
            "reasoning": "I must read it first.",
            "text": "Let me look.\n\n",
            "calls": [{"name": "Bash", "arguments": {"command": f"cd {notes(folder).parent} && echo looked"}}],
        },
        {"tool_contains": "looked", "calls": [{"name": "Read", "arguments": {"file_path": file}}]},
        {"tool_contains": "one", "calls": [{"name": "Edit", "arguments": edit}]},
        {"tool_contains": "updated", "text": "It is edited."},
        {"user_matches": r"look again\Z", "text": "Nothing more."},
    ]
    with working("claude", "@anthropic-ai/claude-code", "2.1.330", folder, rules) as place:
        yield place


def test_claude_code_edits_a_file_and_continues_its_session(place: Place) -> None:
    printed, edited = place.launch("--print", "--allowedTools", "Bash,Read,Edit", "--", "edit it")
    assert place.file.read_text() == "two\nthree\n"
    assert "It is edited." in printed
    assert [one.path for one in edited] == ["/v1/messages?beta=true"] * 4
    blocks = [block for message in edited[-1].body["messages"] for block in message["content"] if block != ""]
    (made,) = [block for block in blocks if isinstance(block, dict) and block.get("name") == "Edit"]
    assert made["input"]["new_string"] == "two\nthree", "it repeats its calls in other words than the model's"

    printed, again = place.by_hand("--print", "--continue", "look again")
    assert "Nothing more." in printed
    printed, once_more = place.installed("claude", "--print", "--continue", "look again")
    assert "Nothing more." in printed
    begins_as_told(place, edited[0])
    goes_on([*edited, *again, *once_more])

    printed, counted = place.launch("--print", "--continue", "/context")
    assert {one.path for one in counted} == {"/v1/messages/count_tokens?beta=true"}
    thousands = f"{once_more[-1].rounds[0]['prompt_tokens'] / 1000:.1f}".removesuffix(".0")
    assert f"{thousands}k / 200k" in printed, "by the server's own figures"


def test_claude_code_finds_the_servers_own_tools(place: Place) -> None:
    assert "mcp__tenuto__chat" in place.with_mcp("--print", "look again")
