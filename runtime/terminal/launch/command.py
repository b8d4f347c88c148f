"""Starting an agent client against a server, showing how, or writing it into the configuration of the client."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import platformdirs

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.client import Remote
from tenuto.runtime.terminal.launch.agent import Agent, Setup, Target, shown
from tenuto.runtime.terminal.launch.claude import CLAUDE
from tenuto.runtime.terminal.launch.codex import CODEX
from tenuto.runtime.terminal.launch.install import install
from tenuto.runtime.terminal.launch.opencode import OPENCODE
from tenuto.runtime.terminal.launch.qwen import QWEN

AGENTS = {agent.name: agent for agent in (CODEX, CLAUDE, OPENCODE, QWEN)}


def start(remote: Remote, agent: Agent, model: str | None, arguments: Sequence[str], *, mcp: bool) -> NoReturn:
    """Become the client: it has this process, and with it the terminal and the signals."""
    target = _target(remote, agent, model, mcp=mcp)
    setup = _with_settings(agent.setup(target))
    program = shutil.which(agent.program)
    if program is None:
        raise ConfigurationError(f"{agent.title} is not installed; to install it: npm install -g {agent.package}")
    remote.close()
    given = {name: value for name, value in setup.environment.items() if value is not None}
    inherited = {name: value for name, value in os.environ.items() if name not in setup.environment}
    os.execve(program, [agent.program, *setup.arguments, *arguments], inherited | given)


def show(remote: Remote, agent: Agent, model: str | None, arguments: Sequence[str], *, mcp: bool) -> None:
    """Print what would be started, as a command for a shell."""
    target = _target(remote, agent, model, mcp=mcp)
    click.echo(shown(agent.program, _with_settings(agent.setup(target)), target, tuple(arguments)))


def configure(remote: Remote, agent: Agent, model: str | None, *, mcp: bool) -> None:
    """Write it into the client's own configuration, and tell what was written.

    Raises:
        ConfigurationError: what is there cannot be changed, or the server wants a key, which is written nowhere.
    """
    target = _target(remote, agent, model, mcp=mcp)
    if target.key is not None:
        raise ConfigurationError(f"{target.url} wants a key, and tenuto writes keys into no file; use tenuto launch")
    made = agent.installed(target)
    for line in install(Path.home(), made):
        click.echo(line)
    click.echo(f"To use it: {made.use}. The server must be at {target.url} then.")


def _target(remote: Remote, agent: Agent, model: str | None, *, mcp: bool) -> Target:
    """The server, with what the client must know of the model.

    Raises:
        ConfigurationError: the model's context is too small for the client.
    """
    wanted = remote.model(model)
    models: list[dict[str, Any]] = remote.get("/v1/models")["data"]
    chosen = next((each for each in models if each["id"] == wanted), models[0])
    context = int(chosen["context_length"])
    if context < agent.least_context:
        raise ConfigurationError(
            f"{agent.title} needs a context of about {agent.least_context:,} tokens, of which its first request alone"
            f" takes about {agent.first_request:,}; {chosen['id']} has {context:,}: serve a model with a longer one"
        )
    return Target(remote.url, str(chosen["id"]), context, remote.key(), mcp)


def _with_settings(setup: Setup) -> Setup:
    """The same with its settings in a file of ours, which is there as long as the client may read it."""
    if setup.settings is None:
        return setup
    name = hashlib.sha256(setup.settings.encode()).hexdigest()[:16]
    path = platformdirs.user_cache_path("tenuto", appauthor=False) / "launch" / f"{name}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(setup.settings)
    path.chmod(0o600)
    return Setup({**setup.environment, setup.settings_variable: str(path)}, setup.arguments)
