"""`tenuto mcp import`: what each client's servers become, what is told of them, and what is refused."""

import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ConfigurationError
from tenuto.runtime.cli import COMMANDS
from tenuto.runtime.terminal.config_files.writing import BACKUP
from tenuto.runtime.terminal.mcp_clients import CLIENTS
from tenuto.runtime.terminal.mcp_import import sources
from tenuto.runtime.terminal.mcp_import.imported import check, imported
from tenuto.runtime.terminal.mcp_import.sources import FORMS, MOST_SERVERS
from tenuto.tools.mcp_config import read_mcp_config
from tests.e2e.server import Server, script

SECRET = "sk-the-canary"
Import = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """The command in a folder and a home of its own: its exit code and all that it said."""
    for name in os.environ:
        if name.startswith(("TENUTO_", "XDG_")) or name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    command = COMMANDS["mcp"][0]()

    def run(*words: str, **variables: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, ["import", *words], env=variables)
        if isinstance(done.exception, ConfigurationError):
            raise done.exception
        assert isinstance(done.exception, SystemExit | None), done.exception
        return done.exit_code, done.output

    return run


def has(home: Path, client: str, text: str, **variables: str) -> Path:
    """The client's own file with this text."""
    path = CLIENTS[client].file(home, variables)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def servers(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["mcpServers"]
    return found


PROGRAM = {"command": "server", "args": ["--root", "/srv"], "env": {"LEVEL": "${LEVEL}"}}
REMOTE = {"url": "https://far.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
CODEX_TOML = """
[mcp_servers.near]
command = "server"
args = ["--root", "/srv"]
env_vars = ["LEVEL"]

[mcp_servers.far]
url = "https://far.example/mcp"
bearer_token_env_var = "TOKEN"
"""
TEXTS = {
    "claude": json.dumps({"numStartups": 3, "mcpServers": {"near": PROGRAM, "far": {"type": "http", **REMOTE}}}),
    "cursor": '{"mcpServers": {"near": {"command": "server", "args": ["--root", "/srv"], "env": {"LEVEL": "${LEVEL}"}},'
    ' /* far away */ "far": {"url": "https://far.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},},},}',
    "vscode": json.dumps({"servers": {"near": {"type": "stdio", **PROGRAM}, "far": {"type": "http", **REMOTE}}}),
    "codex": CODEX_TOML,
    "opencode": json.dumps(
        {
            "mcp": {
                "near": {
                    "type": "local",
                    "command": ["server", "--root", "/srv"],
                    "environment": {"LEVEL": "{env:LEVEL}"},
                },
                "far": {
                    "type": "remote",
                    "url": "https://far.example/mcp",
                    "headers": {"Authorization": "Bearer {env:TOKEN}"},
                },
            }
        }
    ),
}


@pytest.mark.parametrize("client", TEXTS)
def test_a_clients_servers_become_entries_that_mean_the_same(tmp_path: Path, run: Import, client: str) -> None:
    has(tmp_path, client, TEXTS[client])
    code, said = run(client)
    assert code == 0, said
    assert servers(tmp_path / "mcp.json") == {"near": PROGRAM, "far": REMOTE}
    assert "near: set before the server starts: LEVEL" in said
    assert "To use them: tenuto serve --mcp-config mcp.json" in said
    near, far = read_mcp_config(tmp_path / "mcp.json", {"LEVEL": "debug", "TOKEN": "t"})
    assert (near.name, far.name) == ("near", "far")


def test_every_client_that_can_be_named_can_be_read() -> None:
    assert list(FORMS) == list(CLIENTS)


def test_claude_desktops_secrets_are_copied_into_a_file_for_its_owner_alone(tmp_path: Path, run: Import) -> None:
    entry = {"command": "npx", "args": ["-y", "git", "--token", SECRET], "env": {"KEY": SECRET, "EMPTY": ""}}
    has(tmp_path, "claude-desktop", json.dumps({"mcpServers": {"git": entry}, "theme": "dark"}))
    into = tmp_path / "mcp.json"
    into.write_text('{"mcpServers": {}}')
    into.chmod(0o644)
    code, shown = run("claude-desktop", "--print")
    assert (code, into.read_text()) == (0, '{"mcpServers": {}}')
    assert SECRET not in shown
    code, said = run("claude-desktop")
    assert code == 0
    assert SECRET not in said
    assert "git: taken over as they are, in a file for its owner alone: env.KEY\n" in said
    assert servers(into) == {"git": entry}
    assert stat.S_IMODE(into.stat().st_mode) == 0o600


def test_what_vs_code_asks_for_becomes_a_variable(tmp_path: Path, run: Import) -> None:
    asked = {
        "inputs": [{"id": "api-key", "type": "promptString", "password": True}, {"id": "level", "default": "info"}],
        "servers": {
            "near": {"command": "${userHome}/bin/server", "env": {"KEY": "${input:api-key}", "L": "${input:level}"}},
            "project": {"command": "server", "args": ["${workspaceFolder}"], "envFile": "${workspaceFolder}/.env"},
        },
    }
    has(tmp_path, "vscode", json.dumps(asked))
    _, said = run("vscode", "--into", "made.json")
    made = servers(tmp_path / "made.json")
    assert made["near"] == {"command": "${HOME}/bin/server", "env": {"KEY": "${API_KEY}", "L": "${LEVEL:-info}"}}
    assert "near: what its client asks for as api-key is taken from the variable API_KEY" in said
    assert "near: set before the server starts: API_KEY" in said
    assert made["project"]["disabled"] is True
    assert "project: it is disabled until you have seen to it: args.0 has ${workspaceFolder}; its envFile" in said


def test_a_projects_file_knows_its_folder_and_settings_have_servers_too(tmp_path: Path, run: Import) -> None:
    folder = tmp_path / "project" / ".vscode"
    folder.mkdir(parents=True)
    (folder / "mcp.json").write_text('{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/y"]}}}')
    (folder / "settings.json").write_text('{"mcp": {"servers": {"b": {"command": "x"}}}}')
    assert run("--from", str(folder / "mcp.json"))[0] == 0
    assert run("vscode", "--from", str(folder / "settings.json"))[0] == 0
    assert servers(tmp_path / "mcp.json") == {
        "a": {"command": "x", "args": [f"{tmp_path}/project/y"]},
        "b": {"command": "x"},
    }


def test_what_claude_code_has_for_this_folder_comes_before_what_it_has_for_all(tmp_path: Path, run: Import) -> None:
    of_folder = {str(tmp_path): {"mcpServers": {"a": {"command": "here"}}}, "/elsewhere": {"mcpServers": {"c": {}}}}
    everywhere = {"a": {"command": "everywhere"}, "b": {"command": "b"}}
    folder = str(tmp_path / "claude")
    text = json.dumps({"projects": of_folder, "mcpServers": everywhere})
    has(tmp_path, "claude", text, CLAUDE_CONFIG_DIR=folder)
    code, said = run("claude", CLAUDE_CONFIG_DIR=folder)
    assert code == 0
    assert servers(tmp_path / "mcp.json") == {"a": {"command": "here"}, "b": {"command": "b"}}
    assert "a: a second one of this name, for all folders, is left out" in said


def test_what_codex_says_of_tools_and_times_holds_here(tmp_path: Path, run: Import) -> None:
    text = """
    model = "gpt"
    [mcp_servers.near]
    command = "server"
    startup_timeout_sec = 20
    tool_timeout_sec = 45.5
    enabled_tools = ["read"]
    disabled_tools = ["drop"]
    enabled = false
    since = 2026-01-01
    [mcp_servers.near.env]
    LEVEL = "debug"
    """
    assert tomllib.loads(text)
    has(tmp_path, "codex", text)
    _, said = run("codex")
    assert servers(tmp_path / "mcp.json")["near"] == {
        "command": "server",
        "start_timeout_s": 20,
        "timeout_s": 45.5,
        "disabled": True,
        "env": {"LEVEL": "debug"},
        "permission": {"*": "deny", "read": "ask", "drop": "deny"},
    }
    assert "near: since has no counterpart here and is left out" in said


def test_what_means_nothing_to_its_client_is_not_made_to_mean_something(tmp_path: Path, run: Import) -> None:
    shell = {"command": "sh", "args": ["-c", "cd ${SOME} && serve"]}
    has(tmp_path, "claude-desktop", json.dumps({"mcpServers": {"shell": shell}}))
    _, said = run("claude-desktop")
    assert servers(tmp_path / "mcp.json")["shell"] == {**shell, "disabled": True}
    assert "args.1 has ${SOME}" in said


def test_names_that_are_there_are_kept_unless_they_are_replaced(tmp_path: Path, run: Import) -> None:
    into = tmp_path / "mcp.json"
    mine = '{\n    "mcpServers": {\n        "near by": {"command": "mine"}\n    },\n    "mine": [1,  2]\n}\n'
    into.write_text(mine)
    has(tmp_path, "cursor", '{"mcpServers": {"near_by": {"command": "theirs"}, "new": {"command": "n"}}}')
    _, said = run("cursor")
    assert f"near_by: left alone: {into.name} has a server near by; --replace takes this one instead" in said
    assert "mcp.json has besides: near by\n" in said
    assert servers(into) == {"near by": {"command": "mine"}, "new": {"command": "n"}}
    assert '        "near by": {"command": "mine"},\n' in into.read_text()
    assert '    "mine": [1,  2]\n' in into.read_text()
    assert (tmp_path / f"mcp.json{BACKUP}").read_text() == mine
    _, said = run("cursor", "--replace")
    assert servers(into) == {"near by": {"command": "theirs"}, "new": {"command": "n"}}
    assert "new: mcp.json has it already" in said


def test_the_setting_names_the_file_that_is_added_to(tmp_path: Path, run: Import) -> None:
    (tmp_path / "tenuto.toml").write_text('mcp_config = "sub/mine.json"')
    has(tmp_path, "cursor", TEXTS["cursor"])
    _, said = run("cursor")
    assert set(servers(tmp_path / "sub" / "mine.json")) == {"near", "far"}
    assert "To use them" not in said
    run("cursor", TENUTO_MCP_CONFIG=str(tmp_path / "other.json"))
    assert set(servers(tmp_path / "other.json")) == {"near", "far"}


def test_a_file_that_may_be_ours_keeps_what_we_alone_know_and_tells_what_it_allows(tmp_path: Path, run: Import) -> None:
    entry = {"command": "x", "permission": "auto", "start_timeout_s": 5, "bearerCommand": "print-it"}
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"mcpServers": {"a": entry}}))
    _, said = run("--from", "theirs.json")
    assert servers(tmp_path / "mcp.json") == {"a": entry}
    assert "a: what it may do is taken over as it stands there: permission" in said
    (tmp_path / "mcp.json").unlink()
    _, said = run("cursor", "--from", "theirs.json")
    assert servers(tmp_path / "mcp.json") == {"a": {"command": "x"}}
    assert "a: permission has no counterpart here and is left out" in said


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"type": "ws", "url": "ws://x"}, "there are no servers of type 'ws' here"),
        ({"type": ["http"], "url": "http://x"}, "there are no servers of type"),
        ({"command": "x", "url": "http://x"}, "give either 'command' or 'url'"),
        ({"url": "file:///etc/passwd"}, "url: must begin with http"),
        ({"command": "x", "args": "y"}, "args: Input should be a valid list"),
        ({"command": "x", "env": {"A": [[[SECRET]]]}}, "env.A: Input should be a valid string"),
        ({"command": "x\ud800"}, "command: Input should be a valid string"),
        ("x", "its entry is not an object"),
        ({}, "give either"),
    ],
)
def test_what_cannot_be_imported_is_told_and_the_others_are(tmp_path: Path, run: Import, entry: Any, why: str) -> None:
    has(tmp_path, "cursor", json.dumps({"mcpServers": {"bad": entry, "good": {"command": "g"}}}))
    code, said = run("cursor")
    assert code == 1
    told = [line for line in said.splitlines() if line.startswith("bad:")]
    assert len(told) == 1
    assert told[0].startswith("bad: left out: ")
    assert why in told[0]
    assert SECRET not in said
    assert servers(tmp_path / "mcp.json") == {"good": {"command": "g"}}


FIELDS = [
    *("command", "args", "env", "cwd", "url", "headers", "type", "transport", "oauth", "auth", "envFile", "enabled"),
    *("headersHelper", "disabled", "environment", "timeout", "env_vars", "http_headers", "env_http_headers", "scopes"),
    *("bearer_token_env_var", "enabled_tools", "disabled_tools", "startup_timeout_sec", "tool_timeout_sec"),
    *("permission", "tools", "sampling", "roots", "sandbox", "gateway", "timeout_s"),
]
TEXT = st.sampled_from(
    [
        "http",
        "stdio",
        "http://x",
        "${A}",
        "${env:A}",
        "${input:a}",
        "${input:}",
        "{env:A}",
        "{file:x}",
        "${userHome}",
        "~",
    ]
) | st.text(max_size=5)
NAMED = st.sampled_from(["name", "clientId", "scopes", "CLIENT_ID", "*", "A"]) | st.text(max_size=3)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUE = (
    SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(NAMED, SCALAR | st.lists(SCALAR, max_size=2), max_size=3)
)
ENTRY = st.dictionaries(st.sampled_from(FIELDS), VALUE, max_size=5)
ALL_FORMS = [*FORMS.values(), sources.ANY]


@given(st.sampled_from(ALL_FORMS), ENTRY, ENTRY, st.dictionaries(st.just("a"), st.dictionaries(NAMED, SCALAR)))
def test_whatever_an_entry_is_it_becomes_one_that_the_runtime_takes_or_is_told(
    form: sources.Form, first: Any, second: Any, inputs: Any
) -> None:
    source = sources.Source(Path("there"), form, {"first": {"command": "x", **first}, "second": second}, inputs)
    for one in imported([source], {}):
        if one.entry is None:
            assert one.told
        else:
            check(json.dumps({"mcpServers": {one.name: one.entry}}), "here", {})


def test_names_of_others_drive_no_terminal_and_take_nobodys_place(tmp_path: Path, run: Import) -> None:
    names = ["a b", "a.b", "\x1b[2Jx\ny", "\ud800", "n" * 49]
    has(tmp_path, "cursor", json.dumps({"mcpServers": {name: {"command": "x"} for name in names}}))
    code, said = run("cursor")
    assert code == 1
    assert "\x1b" not in said
    assert "a.b: left out: it would have the name of a b here" in said
    assert [*servers(tmp_path / "mcp.json")] == ["a b", "\x1b[2Jx\ny"]


@pytest.mark.parametrize("words", [["mcp"], ["mcp", "--model", "x"]])
def test_this_server_itself_is_left_out(tmp_path: Path, run: Import, words: list[str]) -> None:
    entries = {
        "tenuto": {"command": "/opt/bin/tenuto", "args": words},
        "again": {"command": "python", "args": ["-m", "tenuto", *words]},
    }
    has(tmp_path, "cursor", json.dumps({"mcpServers": entries}))
    code, said = run("cursor")
    assert code == 0
    assert said.splitlines() == [f"{name}: left out: it is this server itself" for name in entries]
    assert not (tmp_path / "mcp.json").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no MCP servers"),
        ("{}", "names no MCP servers"),
        ('{"mcpServers": {}}', "names no MCP servers"),
        ('{"mcpServers": [1]}', "mcpServers is not an object"),
        ("[]", "it is not an object"),
        ("{", "line 1, column 2"),
        ('{"mcpServers": {"a": ' + "[" * 10_000, "nested"),
        ('{"mcpServers": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested too deep"),
        (json.dumps({"mcpServers": {str(n): {"command": "x"} for n in range(MOST_SERVERS + 1)}}), "more than 256"),
    ],
)
def test_a_file_that_names_no_servers_is_refused(tmp_path: Path, run: Import, text: str, why: str) -> None:
    path = has(tmp_path, "cursor", text)
    with pytest.raises(ConfigurationError, match=str(path)) as raised:
        run("cursor")
    assert why in str(raised.value)
    assert not (tmp_path / "mcp.json").exists()


def test_a_toml_file_that_is_none_is_refused(tmp_path: Path, run: Import) -> None:
    for text in ("[mcp_servers", "a = " + "[" * 10_000, "mcp_servers = 1"):
        has(tmp_path, "codex", text)
        with pytest.raises(ConfigurationError, match=r"config\.toml"):
            run("codex")


def test_links_and_others_files_are_not_read_nor_written(tmp_path: Path, run: Import) -> None:
    real = tmp_path / "real.json"
    real.write_text(TEXTS["cursor"])
    path = CLIENTS["cursor"].file(tmp_path, {})
    path.parent.mkdir()
    path.symlink_to(real)
    with pytest.raises(ConfigurationError, match=rf"it is a link; name {real} instead"):
        run("cursor")
    into = tmp_path / "into.json"
    into.symlink_to(tmp_path / "nowhere.json")
    with pytest.raises(ConfigurationError, match="it is a link"):
        run("--from", str(real), "--into", str(into))
    assert not (tmp_path / "nowhere.json").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"mcpServers": {"mine": {}}}', "give either"),
        ('{"mcpServers": {} // mine\n}', "not JSON"),
        ('{"mcpServers": 1}', "no object with mcpServers"),
        ("[]", "no object with mcpServers"),
        ("nothing", "line 1, column 1"),
    ],
)
def test_a_file_of_ours_that_the_runtime_would_not_take_is_not_written(
    tmp_path: Path, run: Import, text: str, why: str
) -> None:
    into = tmp_path / "mcp.json"
    into.write_text(text)
    has(tmp_path, "cursor", TEXTS["cursor"])
    for words in (["--print"], []):
        with pytest.raises(ConfigurationError) as raised:
            run("cursor", *words)
        assert why in str(raised.value)
    assert into.read_text() == text
    assert sorted(each.name for each in tmp_path.iterdir()) == [".cursor", "mcp.json"]


def test_whoever_names_nothing_is_told_what_there_is(run: Import) -> None:
    code, said = run()
    assert code == 2
    assert "claude-desktop" in said
    with pytest.raises(ConfigurationError, match="there is no file"):
        run("codex")


@pytest.mark.slow
def test_what_is_imported_is_served(tmp_path: Path, run: Import) -> None:
    words = ["-m", "tests.tools.servers.counting", str(tmp_path / "ids")]
    program = {"command": sys.executable, "args": words, "cwd": str(ROOT)}
    has(tmp_path, "claude-desktop", json.dumps({"mcpServers": {"count": program}}))
    assert run("claude-desktop")[0] == 0
    server = Server(tmp_path, script(tmp_path / "model.json"), ("--mcp-config", str(tmp_path / "mcp.json"))).start()
    try:
        with server.client() as client:
            listed: list[Mapping[str, Any]] = client.get("/v1/mcp/servers").json()["data"]
        assert [(each["id"], each["status"]) for each in listed] == [("count", "ready")]
    finally:
        server.close()


ROOT = Path(__file__).parents[2]
