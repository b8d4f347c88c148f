"""`tenuto sessions` against a real server, `tenuto completion`, and the help of all commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.runtime.data_folder.ownership import read_owner
from tests.conftest import Start
from tests.e2e.forked import program
from tests.e2e.server import Server, environment, script
from tests.patience import HANGS_S
from tests.terminal.screen import Terminal

pytestmark = pytest.mark.slow


def tenuto(home: Path, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        program(*arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env=environment(home),
        cwd=home,
        check=False,
    )


def sessions(server: Server, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return tenuto(server.folder, "sessions", *arguments, "--data-dir", str(server.data_dir), text=text)


@pytest.fixture
def told(start: Start) -> Server:
    """A server with the session `trip`, of two turns."""
    server = start()
    with server.client() as client:
        for text in ("hello", "again"):
            body = {"session_id": "trip", "messages": [{"role": "user", "content": text}]}
            client.post("/v1/chat/completions", json=body).raise_for_status()
    return server


def test_a_session_is_listed_shown_forked_exported_imported_and_deleted(told: Server) -> None:
    assert sessions(told, "list").stdout.splitlines()[1].split()[:2] == ["trip", "4"]
    assert sessions(told, "show", "trip").stdout == "> hello\nhello\n> again\nagain\n"
    assert sessions(told, "fork", "trip", "short", "--at", "2").stdout == "short: forked from trip, 2 items\n"
    file = told.folder / "trip.json"
    assert sessions(told, "export", "trip", "-o", str(file)).returncode == 0
    assert sessions(told, "delete", "trip", "--yes").stdout == "deleted trip\n"
    assert sessions(told, "show", "trip").returncode == 1
    assert sessions(told, "import", str(file)).stdout == "trip: imported, 4 items\n"
    piped = sessions(told, "import", "-", "--as", "copy", text=file.read_text())
    assert piped.stdout == "copy: imported, 4 items\n"
    listed = json.loads(sessions(told, "list", "--json").stdout)
    assert {each["id"]: each["num_items"] for each in listed} == {"trip": 4, "short": 2, "copy": 4}
    assert json.loads(sessions(told, "export", "copy").stdout)["items"] == json.loads(file.read_text())["items"]


@pytest.mark.parametrize(("typed", "code", "left"), [("n", 1, 200), ("y", 0, 404)])
def test_deleting_asks_first(told: Server, typed: str, code: int, left: int) -> None:
    with Terminal(told.folder, "sessions", "delete", "trip", "--data-dir", str(told.data_dir)) as terminal:
        terminal.until("delete trip permanently? [y/N]")
        terminal.line(typed)
        assert terminal.exit_code() == code
    with told.client() as client:
        assert client.get("/v1/sessions/trip").status_code == left


def test_without_an_answer_nothing_is_deleted(told: Server) -> None:
    assert sessions(told, "delete", "trip").returncode == 1
    assert sessions(told, "show", "trip").returncode == 0


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "give one with --as NAME")]
)
def test_what_is_no_session_is_refused_in_words(told: Server, text: str, said: str) -> None:
    ended = sessions(told, "import", "-", text=text)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr


def test_a_server_is_started_where_none_lives_and_used_again(tmp_path: Path) -> None:
    model = script(tmp_path / "model.json")
    data = tmp_path / "data"
    try:
        answer = tenuto(tmp_path, "chat", "--model", model, "--data-dir", str(data), "--session", "s", "hello")
        assert (answer.returncode, answer.stdout) == (0, "hello\n")
        first = read_owner(data)
        assert tenuto(tmp_path, "sessions", "list", "--data-dir", str(data)).stdout.splitlines()[1].startswith("s ")
        assert read_owner(data) == first
    finally:
        owner = read_owner(data)
        if owner is not None:
            os.kill(owner.pid, signal.SIGTERM)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_tenuto(tmp_path: Path, shell: str) -> None:
    ended = tenuto(tmp_path, "completion", shell)
    assert ended.returncode == 0
    assert "_TENUTO_COMPLETE" in ended.stdout


def test_words_are_completed(tmp_path: Path) -> None:
    variables = {"_TENUTO_COMPLETE": "bash_complete", "COMP_WORDS": "tenuto sessions ex", "COMP_CWORD": "2"}
    ended = subprocess.run(
        [str(Path(sys.executable).parent / "tenuto")],
        env=environment(tmp_path) | variables,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert ended.stdout == "plain,export\n"


@pytest.mark.parametrize("command", ["chat", "doctor", "sessions"])
def test_help_has_examples_and_exit_codes(tmp_path: Path, command: str) -> None:
    ended = tenuto(tmp_path, command, "--help")
    assert f"tenuto {command}" in ended.stdout.partition("Examples:")[2]
    assert "Exit codes: 0" in ended.stdout


def test_help_loads_neither_the_line_editor_nor_the_tables() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from tenuto.runtime.cli import cli\n"
        "CliRunner().invoke(cli, ['chat', '--help'])\n"
        "print(sorted({'rich', 'prompt_toolkit', 'mcp', 'llama_cpp', 'pydantic'} & {*sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, check=True)
    assert ended.stdout == "[]\n"
