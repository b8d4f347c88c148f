"""qwen-code, as it is published: its own tools, and a session that goes on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import Place, begins_as_told, goes_on, notes, working

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("qwen").resolve()
    file = str(notes(folder))
    edit = {"file_path": file, "old_string": "one", "new_string": "two"}
    rules: list[dict[str, Any]] = [
        {"user_contains": "look again", "text": "Nothing more."},
        {
            "user_contains": "edit it",
            "text": "Let me look.\n\n",
            "calls": [{"name": "read_file", "arguments": {"file_path": file}}],
        },
        {"tool_contains": "one", "calls": [{"name": "edit", "arguments": edit}]},
        {"tool_contains": "two", "text": "It is edited."},
    ]
    with working("qwen", "@qwen-code/qwen-code", "0.24.4", folder, rules) as place:
        yield place


def test_qwen_code_edits_a_file_in_a_session_of_two_turns(place: Place) -> None:
    """It takes up what is typed in an order of its own."""
    typed = "".join(turn(text) + "\n" for text in ("edit it", "look again"))
    printed, said = place.launch(
        "--yolo", "--input-format", "stream-json", "--output-format", "stream-json", typed=typed
    )
    assert place.file.read_text() == "two\n"
    assert "It is edited." in printed
    assert "Nothing more." in printed
    assert {one.path for one in said} == {"/v1/chat/completions"}
    main = [one for one in said if "You are Qwen Code" in one.body["messages"][0]["content"]]
    assert len(main) == 4
    begins_as_told(place, main[0])
    goes_on(main)

    for start in (place.by_hand, lambda *words: place.installed("qwen", *words)):
        printed, again = start("--yolo", "--continue", "--prompt", "look again")
        assert "Nothing more." in printed
        assert again[0].rounds[0]["cached_tokens"] > 10_000, (
            "it tells the state of the repository anew, and moves the date"
        )


def test_qwen_code_finds_the_servers_own_tools(place: Place) -> None:
    assert "mcp__tenuto__chat" in place.with_mcp("--yolo", "--prompt", "look again")


def turn(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})
