"""Lets an MCP client of this machine have the server, by the client's own configuration."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.launch.agent import Installed
from tenuto.runtime.terminal.launch.install import install as write
from tenuto.runtime.terminal.mcp_clients import CLIENTS, NAME, McpClient, Served

ADD_S = 60.0
"""For a client's own command."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("client", type=click.Choice([*CLIENTS]))
@click.option(
    "--url", metavar="URL", help="Let it use a running server's MCP endpoint instead of starting `tenuto mcp`."
)
@click.option(
    "--key-variable", metavar="NAME", help="With --url: the environment variable in which the client finds a key."
)
@click.option("--print", "is_shown", is_flag=True, help="Show what would be done, and do nothing.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def install(client: str, url: str | None, key_variable: str | None, is_shown: bool, options: tuple[str, ...]) -> None:
    """Let CLIENT have this server as an MCP server. What stands after -- goes to `tenuto mcp`."""
    if url is None and key_variable is not None:
        raise click.UsageError("--key-variable says how a server at a URL is logged in at; it needs --url")
    if url is not None and options:
        raise click.UsageError(f"{shlex.join(options)}: with --url nothing is started that could have options")
    served = Served(url=url, variable=key_variable or "") if url else Served((*_program(), "mcp", *options))
    chosen = CLIENTS[client]
    if chosen.adds is not None:
        _run(chosen, [*chosen.adds(served)], is_shown=is_shown)
    elif chosen.entry is not None:
        _write(chosen, chosen.entry(served), is_shown=is_shown)


def _program() -> tuple[str, ...]:
    """The path of this command, wherever it is started from: clients with windows have no PATH of a shell's."""
    beside = Path(sys.executable).with_name("tenuto")
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "tenuto")


def _run(client: McpClient, command: list[str], *, is_shown: bool) -> None:
    if is_shown:
        click.echo(shlex.join(command))
        return
    program = shutil.which(command[0])
    if program is None:
        raise ConfigurationError(
            f"{client.title}'s command {command[0]!r} is not on PATH; where it is, run: {shlex.join(command)}"
        )
    try:
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ADD_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ConfigurationError(f"{client.title} did not add the server: {exc}") from None
    if done.returncode:
        raise ConfigurationError(f"{client.title} did not add the server: {(done.stderr or done.stdout).strip()}")
    click.echo(f"{client.title} has it now: {(done.stdout or done.stderr).strip()}")


def _write(client: McpClient, entry: Mapping[str, object], *, is_shown: bool) -> None:
    made = Installed(client.path, client.use, merged={client.key: {NAME: entry}})
    if is_shown:
        click.echo(f"{Path.home() / made.path} would have:\n{json.dumps(made.merged, indent=2)}")
        return
    for line in write(Path.home(), made):
        click.echo(line)
    click.echo(f"To use it in {client.title}: {made.use}.")
