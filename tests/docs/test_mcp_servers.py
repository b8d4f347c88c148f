"""The example of docs/mcp-servers.md for what messages name of MCP servers works as it stands there."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.mcp import attaching
from tests.runtime.loop.house import call

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "mcp-servers.md").read_text()


def section(heading: str) -> str:
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_message_of_the_page_has_what_it_names(start: Start, tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", section("Prompts and resources in a message"), re.DOTALL)
    entry = {"command": sys.executable, "args": [str(Path(attaching.__file__))]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"memos": entry}}))
    server = start("--mcp-config", str(tmp_path / "mcp.json"), rules=[{"user_contains": "say of it", "text": "Much."}])
    with server.client() as http:
        body = {**json.loads(example), "session_id": "example"}
        answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["choices"][0]["message"]["content"] == "Much."
        said = http.get("/v1/sessions/example").json()["items"]
    assert [item["text"] for item in said] == [
        "Let us talk about tea.",
        "Gladly.",
        "Be plain.",
        "[resource of memos: memo://a, text/plain]\nreading 1 of memo://a",
        "What does the memo say of it?",
        "Much.",
    ]


def test_the_permission_of_the_page_lets_links_be_read(start: Start, tmp_path: Path) -> None:
    (permission,) = re.findall(r"`\"permission\": (\{.*?\})`", section("What tools link to"))
    entry: dict[str, Any] = {
        "command": sys.executable,
        "args": [str(Path(attaching.__file__))],
        "permission": {**json.loads(permission), "link": "auto"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"memos": entry}}))
    rules = [
        {"tool_contains": "read_resource", "calls": [call("read_resource", uri="memo://b")]},
        {"tool_contains": "reading", "text": "I have read it."},
        {"user": "go", "calls": [call("memos__link", uri="memo://b")]},
    ]
    server = start("--mcp-config", str(tmp_path / "mcp.json"), rules=rules, cells=16384)
    with server.client() as http:
        body = {"messages": [{"role": "user", "content": "go"}]}
        answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["choices"][0]["message"]["content"] == "I have read it."
