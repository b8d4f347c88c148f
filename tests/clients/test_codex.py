"""Codex, as it is published: a call of its shell, the call's result, a session that it resumes, and an image."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import Place, begins_as_told, goes_on, working

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

RULES: list[dict[str, Any]] = [
    {
        "user": "append to it",
        "text": "I will.\n\n",
        "calls": [{"name": "exec_command", "arguments": {"cmd": "echo held >> notes.txt && echo appended"}}],
    },
    {"tool_contains": "appended", "text": "It is appended."},
    {"user_contains": "look at this", "text": "I have seen: ${user}"},
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
UNSANDBOXED = "--dangerously-bypass-approvals-and-sandbox"
"""It works in a folder of the test's alone, and its sandbox needs what not every machine has."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("codex").resolve()
    with working("codex", "@openai/codex", "0.169.0", folder, RULES) as place:
        yield place


def test_codex_edits_a_file_resumes_its_session_and_shows_an_image(place: Place) -> None:
    printed, edited = place.launch("exec", UNSANDBOXED, "append to it")
    assert place.file.read_text() == "one\nheld\n"
    assert "It is appended." in printed
    assert [one.path for one in edited] == ["/v1/responses"] * 2

    image = place.folder / "pixel.png"
    image.write_bytes(base64.b64decode(PIXEL))
    printed, seen = place.by_hand("exec", "resume", "--last", UNSANDBOXED, "--image", str(image), "--", "look at this")
    assert "I have seen: " in printed
    assert any(part["type"] == "input_image" for part in seen[0].body["input"][-1]["content"])
    resume = ("exec", "--profile", "tenuto", "resume", "--last", UNSANDBOXED)
    printed, again = place.installed("codex", *resume, "look at this again")
    assert "I have seen: " in printed
    begins_as_told(place, edited[0])
    goes_on([*edited, *seen, *again])


def test_codex_finds_the_servers_own_tools(place: Place) -> None:
    assert '"name": "mcp__tenuto"' in place.with_mcp("exec", UNSANDBOXED, "look at this")
