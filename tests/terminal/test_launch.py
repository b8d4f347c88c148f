"""`tenuto launch`: what clients are started with, what is refused, and what is written where the user asks for it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import ConfigurationError
from tenuto.runtime.data_folder.ownership import read_owner
from tenuto.runtime.terminal.config_files.writing import BACKUP
from tenuto.runtime.terminal.launch.agent import Agent, Target, shown
from tenuto.runtime.terminal.launch.command import AGENTS
from tenuto.runtime.terminal.launch.install import install
from tests.e2e.server import Server, environment, script
from tests.patience import HANGS_S

KEY = "a secret"
TARGET = Target("http://127.0.0.1:8420", "coder", 131_072)
KEYED = Target("https://example.org", "coder", 131_072, KEY, mcp=True)
FAKE = '#!/bin/sh\nprintf "%s\\n" "$OPENAI_MODEL $ANTHROPIC_API_KEY" "$@"\n'

each_agent = pytest.mark.parametrize("agent", AGENTS.values(), ids=list(AGENTS))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with a key and two models: one with room for every client, and one without."""
    folder = tmp_path_factory.mktemp("launch")
    small = script(folder / "small.json", cells=4096)
    running = Server(folder, script(folder / "coder.json", cells=1 << 17), ("--model", small, "--api-key", KEY)).start()
    yield running
    running.close()


def launch(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenuto", "launch", *words],
        env={**environment(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


def fake(folder: Path, name: str) -> str:
    """A client that tells how it was started; the PATH to find it."""
    program = folder / name
    program.write_text(FAKE)
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
def test_what_is_shown_says_everything_but_the_key(server: Server, tmp_path: Path) -> None:
    done = launch(
        tmp_path, "claude", "--url", f"{server.url}/", "--api-key", KEY, "--mcp", "--print", "--", "-p", "what is it?"
    )
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.replace("\\\n", " "))
    assert words[:3] == ["env", "-u", "ANTHROPIC_API_KEY"]
    assert {f"ANTHROPIC_BASE_URL={server.url}", "ANTHROPIC_MODEL=coder"} <= {*words}
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS=131072" in words
    assert words[-2:] == ["-p", "what is it?"]
    assert KEY not in done.stdout


@pytest.mark.slow
def test_a_client_takes_the_place_of_the_command(server: Server, tmp_path: Path) -> None:
    path = fake(tmp_path, "qwen")
    given = {"PATH": path, "TENUTO_CLIENT_KEY": KEY, "OPENAI_MODEL": "another"}
    done = launch(tmp_path, "qwen", "--url", server.url, "--", "--continue", "a b", **given)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["coder ", "--auth-type", "openai", "--continue", "a b"])
    written = [path.read_text() for path in tmp_path.glob(".cache/tenuto/launch/*.json")]
    assert [json.loads(text)["model"]["generationConfig"] for text in written] == [{"contextWindowSize": 131_072}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("claude", "--model", "small"), 2, "context of about 37,500 tokens.* about 25,000; small has 4,096"),
        (("opencode", "--install"), 2, "wants a key, and tenuto writes keys into no file"),
        (("codex", "--install", "--print"), 2, "cannot be given together"),
        (("codex",), 2, "Codex is not installed; to install it: npm install -g @openai/codex"),
        (("emacs",), 2, "'emacs' is not one of"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    server: Server, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = launch(tmp_path, *words, "--url", server.url, TENUTO_CLIENT_KEY=KEY, PATH="/usr/bin:/bin")
    assert done.returncode == code
    assert re.search(told, done.stderr), done.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_server_is_started_where_none_runs_but_not_to_show_something(tmp_path: Path) -> None:
    data, path = str(tmp_path / "data"), fake(tmp_path, "codex")
    model = script(tmp_path / "model.json", cells=1 << 15)
    shown = launch(tmp_path, "codex", "--data-dir", data, "--model", model, "--print")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no server is running" in shown.stderr
    try:
        done = launch(tmp_path, "codex", "--data-dir", data, "--model", model, "--", "exec", "hi", PATH=path)
        assert done.returncode == 0, done.stderr
        assert "model_context_window=32768" in done.stdout.splitlines()
        assert done.stdout.splitlines()[-2:] == ["exec", "hi"]
    finally:
        owner = read_owner(Path(data))
        if owner is not None:
            os.kill(owner.pid, signal.SIGKILL)


@each_agent
@pytest.mark.parametrize("target", [TARGET, KEYED], ids=["open", "keyed"])
def test_every_client_gets_the_address_the_model_and_its_limits(agent: Agent, target: Target) -> None:
    setup = agent.setup(target)
    given = " ".join([*setup.arguments, *(value or "" for value in setup.environment.values()), setup.settings or ""])
    assert {target.url, "coder", "131072", "32000"} - {*_words(given, target)} == set()
    assert (f"{target.url}/mcp" in given) is target.mcp
    assert KEY not in shown(agent.program, setup, target, ())
    assert KEY not in " ".join(setup.arguments) or agent.name == "claude"


def _words(given: str, target: Target) -> Iterator[str]:
    wanted = (target.url, target.model, str(target.context), str(target.output), str(target.context - target.output))
    found = [word for word in wanted if word in given]
    yield from (str(target.output) if word == str(target.context - target.output) else word for word in found)


@each_agent
def test_what_is_installed_is_added_to_what_there_is(agent: Agent, tmp_path: Path) -> None:
    made = agent.installed(TARGET)
    path = tmp_path / made.path
    path.parent.mkdir(parents=True)
    mine: dict[str, Any] = {"theme": "dark", "env": {"MINE": "1"}, "provider": {"mine": {}}}
    path.write_text(json.dumps(mine))
    assert len(install(tmp_path, made)) == 2
    assert json.loads(path.with_name(path.name + BACKUP).read_text()) == mine
    assert install(tmp_path, made) == [f"{path} has it already."]
    if made.merged is None:
        assert tomllib.loads(path.read_text())["model_providers"]["tenuto"]["base_url"] == f"{TARGET.url}/v1"
        return
    after = json.loads(path.read_text())
    assert after["theme"] == "dark"
    assert after["env"]["MINE"] == "1"
    assert after["provider"]["mine"] == {}
    assert TARGET.url in path.read_text()


@pytest.mark.parametrize("text", ["{'a': 1}", "[]"])
def test_what_is_no_json_object_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    made = AGENTS["opencode"].installed(TARGET)
    path = tmp_path / made.path
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="add by hand"):
        install(tmp_path, made)
    assert path.read_text() == text
    assert [*path.parent.iterdir()] == [path]
