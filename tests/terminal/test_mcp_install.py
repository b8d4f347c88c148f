"""`tenuto mcp install`: what each client's configuration has then, what stays, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tenuto.runtime.terminal.config_files.writing import BACKUP
from tenuto.runtime.terminal.mcp_clients import CLIENTS
from tests.e2e.server import Server, environment, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:8420/mcp"
FAKE = '#!/bin/sh\nprintf "%s\\n" "$@" >> told\n'
FILES = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "opencode": (".config/opencode/opencode.json", "mcp"),
}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the paths are those of Linux")


def run(folder: Path, *words: str, code: int = 0, **variables: str) -> str:
    """The command in a home of its own: what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "tenuto", "mcp", *words],
        env={**environment(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def entry(folder: Path, client: str) -> dict[str, Any]:
    path, key = FILES[client]
    found: dict[str, Any] = json.loads((folder / path).read_text())[key]["tenuto"]
    return found


@on_linux
@pytest.mark.parametrize("client", FILES)
def test_a_clients_file_has_the_server_beside_what_it_had(tmp_path: Path, client: str) -> None:
    path, key = FILES[client]
    before = {"theme": "dark", key: {"other": {"command": "other"}}}
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(json.dumps(before))
    assert f"Wrote {tmp_path / path}." in run(tmp_path, "install", client)
    after = json.loads((tmp_path / path).read_text())
    assert (after["theme"], after[key]["other"]) == ("dark", {"command": "other"})
    assert json.loads((tmp_path / (path + BACKUP)).read_text()) == before
    assert "has it already" in run(tmp_path, "install", client)


@on_linux
async def test_what_is_written_starts_a_server_that_answers(tmp_path: Path) -> None:
    server = Server(tmp_path, script(tmp_path / "model.json")).start()
    try:
        run(tmp_path, "install", "cursor", "--", "--data-dir", str(server.data_dir))
        made = entry(tmp_path, "cursor")
        parameters = StdioServerParameters(command=made["command"], args=made["args"], env=environment(tmp_path))
        async with Client(parameters, read_timeout_seconds=HANGS_S) as client:
            assert "chat" in {tool.name for tool in (await client.list_tools()).tools}
    finally:
        server.close()


@on_linux
@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("cursor", {"url": URL, "headers": {"Authorization": "Bearer ${env:MY_KEY}"}}),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${env:MY_KEY}"}}),
        ("opencode", {"type": "remote", "url": URL, "headers": {"Authorization": "Bearer {env:MY_KEY}"}}),
    ],
)
def test_an_endpoints_key_is_named_by_its_variable(tmp_path: Path, client: str, expected: dict[str, Any]) -> None:
    run(tmp_path, "install", client, "--url", URL, "--key-variable", "MY_KEY", MY_KEY="a secret")
    assert entry(tmp_path, client) == expected


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude", ["mcp", "add-json", "--scope", "user", "tenuto", json.dumps({"type": "http", "url": URL})]),
        ("codex", ["mcp", "add", "tenuto", "--url", URL]),
    ],
)
def test_a_client_with_a_command_of_its_own_is_told_by_it(tmp_path: Path, client: str, expected: list[str]) -> None:
    (tmp_path / client).write_text(FAKE)
    (tmp_path / client).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert "has it now" in run(tmp_path, "install", client, "--url", URL, PATH=path)
    assert (tmp_path / "told").read_text().splitlines() == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_what_would_be_done_is_shown_and_nothing_is_done(tmp_path: Path, client: str) -> None:
    said = run(tmp_path, "install", client, "--print", "--", "--model", "mine", PATH="")
    assert all(word in said for word in ("tenuto", "mcp", "--model", "mine"))
    assert [*tmp_path.iterdir()] == []


@on_linux
@pytest.mark.parametrize("text", ['{"mcpServers": {}', '{"mcpServers": []}', '"mcpServers"', "{'mcpServers': {}}"])
def test_a_file_that_cannot_be_added_to_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(text)
    assert "add by hand" in run(tmp_path, "install", "cursor", code=2)
    assert file.read_text() == text
    assert [*file.parent.iterdir()] == [file]


@on_linux
def test_comments_stay_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{\n  // mine\n  "mcpServers": {}, // all\n}\n')
    run(tmp_path, "install", "cursor")
    before, after = file.read_text().split('"tenuto"')
    assert before == '{\n  // mine\n  "mcpServers": {\n    '
    assert after.endswith("}, // all\n}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "claude-desktop", "--url", URL), "programs alone"),
        (("install", "cursor", "--key-variable", "MY_KEY"), "needs --url"),
        (("install", "cursor", "--url", URL, "--", "--model", "x"), "with --url nothing is started"),
        (("install", "claude"), "is not on PATH"),
        (("install", "emacs"), "'emacs' is not one of"),
        (("--mcp-config", "x.json", "login", "mail"), "options for login stand after it"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in run(tmp_path, *words, code=2, PATH="")
    assert [*tmp_path.iterdir()] == []
