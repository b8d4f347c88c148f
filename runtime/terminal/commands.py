"""The commands for people as click has them: options and help. What they do is in modules that load when called."""

import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenuto.runtime.terminal.client import Remote

SECONDS_TO_START = 300.0
EXIT_CODES = "\b\nExit codes: 0 done, 1 something failed, 2 wrong usage or configuration, 130 stopped by Ctrl-C."

_SERVER = (
    click.option("--url", metavar="URL", help="Use the server at URL instead of the one that owns the data folder."),
    click.option(
        "--api-key", metavar="KEY", envvar="TENUTO_CLIENT_KEY", help="That server's API key; also TENUTO_CLIENT_KEY."
    ),
    click.option("--data-dir", metavar="DIR", help="Data folder; if no server is running for it, one is started."),
    click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists."),
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name its server."""
    for option in reversed(_SERVER):
        command = option(command)
    return command


@contextmanager
def remote_of(given: dict[str, Any], **server: Any) -> "Iterator[Remote]":
    """A client of the server that the options name; `server` is what one that is started gets besides."""
    from tenuto.runtime.config import command_line, load
    from tenuto.runtime.data_folder.local_server import LocalServer
    from tenuto.runtime.terminal.client import Remote

    local_server = None
    if given["url"] is None:
        flags = {name: value for name, value in {**given, **server}.items() if value and name not in ("url", "api_key")}
        local_server = LocalServer(load(flags).data_dir, command_line(flags), SECONDS_TO_START)
    remote = Remote(local_server, given["url"], given["api_key"])
    try:
        yield remote
    finally:
        remote.close()


@click.command(
    epilog="""\b
Examples:
  tenuto chat                                  chat; Ctrl-C stops an answer
  tenuto chat --session trip                   start or continue the chat `trip`
  tenuto chat "What is 17 * 23?"               one message; the answer goes to stdout
  git diff | tenuto chat --session review      read read read read the message from a pipe

Without a terminal, tool calls that need approval are denied unless --yes is given.

"""
    + EXIT_CODES
)
@click.argument("message", required=False)
@click.option("--session", metavar="NAME", help="Name of the chat to start or continue.")
@click.option("--model", metavar="MODEL", help="The model to use; if a server is started, the one it loads.")
@click.option("--mcp-config", metavar="FILE", help="If a server is started, the `mcpServers` file it uses.")
@click.option("--yes", is_flag=True, help="Approve every tool call; only with MESSAGE or a pipe.")
@with_server
def chat(
    message: str | None, session: str | None, model: str | None, mcp_config: str | None, yes: bool, **given: Any
) -> None:
    """Chat with a model in the terminal, see its tool calls, and approve them.

    Without MESSAGE, this is a conversation. With MESSAGE, or one on stdin, only the answer is printed.
    """
    from tenuto.runtime.terminal.chat import run

    with remote_of(given, model=(model,) if model else None, mcp_config=mcp_config) as remote:
        sys.exit(run(remote, session=session, model=model, message=message, yes=yes))


@click.command(
    epilog="""\b
Examples:
  tenuto launch codex                          Codex with the model of the running server
  tenuto launch claude -- --continue           what stands after -- goes to the client
  tenuto launch opencode --model ./model.gguf  if no server is running, one is started with this model
  tenuto launch qwen --print                   show the command and its environment, and start nothing

"""
    + EXIT_CODES
)
@click.argument("client", type=click.Choice(["codex", "claude", "opencode", "qwen"]))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", metavar="MODEL", help="The model to use; if a server is started, the one it loads.")
@click.option("--mcp-config", metavar="FILE", help="If a server is started, the `mcpServers` file it uses.")
@click.option("--mcp", is_flag=True, help="Let the client have Tenuto as an MCP server too.")
@click.option("--print", "printed", is_flag=True, help="Print the command and its environment instead; start nothing.")
@click.option(
    "--install", is_flag=True, help="Write it into the client's own configuration instead; see docs/clients.md."
)
@with_server
def launch(
    client: str,
    arguments: tuple[str, ...],
    model: str | None,
    mcp_config: str | None,
    mcp: bool,
    printed: bool,
    install: bool,
    **given: Any,
) -> None:
    """Start a coding agent against this server: codex, claude, opencode or qwen.

    It gets the server's address, a model and its limits by its environment and arguments. Its own configuration stays
    as it is, unless --install is given.
    """
    from tenuto.runtime.terminal.launch import command

    agent = command.AGENTS[client]
    if printed and install:
        raise click.UsageError("--print and --install cannot be given together")
    if printed or install:
        must_run(given)
    with remote_of(given, model=(model,) if model else None, mcp_config=mcp_config) as remote:
        if printed:
            command.show(remote, agent, model, arguments, mcp=mcp)
        elif install:
            command.configure(remote, agent, model, mcp=mcp)
        else:
            command.start(remote, agent, model, arguments, mcp=mcp)


def must_run(given: dict[str, Any]) -> None:
    """Raise ServerUnreachable where no server is running that the options name."""
    from tenuto.errors import ServerUnreachable
    from tenuto.runtime.config import load
    from tenuto.runtime.data_folder.ownership import read_owner

    flags = {name: value for name, value in given.items() if value and name in ("data_dir", "config")}
    if given["url"] is None and read_owner(load(flags).data_dir) is None:
        raise ServerUnreachable("no server is running, and none is started for this; start one with tenuto serve")


@click.command(
    epilog="""\b
Examples:
  tenuto doctor                                the machine, the server, its models and MCP servers
  tenuto doctor --mcp-config mcp.json          try the MCP servers of a file before using it
  tenuto doctor --model ./model.gguf --json    try a model; print JSON

Exit codes: 0 nothing is broken, 1 something is, 2 wrong usage or configuration.
"""
)
@click.option(
    "--mcp-config", metavar="FILE", help="Try the MCP servers in this file; default: those of the running server."
)
@click.option(
    "--model",
    "models",
    metavar="MODEL",
    multiple=True,
    help="Load and describe this model; default: those of the running server.",
)
@click.option("--mmproj", metavar="FILE", help="Projector of the first model; default: one beside its GGUF file.")
@click.option("--lora", metavar="NAME=FILE", multiple=True, help="LoRA adapter: which of the models it fits.")
@click.option("--data-dir", metavar="DIR", help="Data folder to check.")
@click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists.")
@JSON_OPTION
def doctor(
    mcp_config: str | None,
    models: tuple[str, ...],
    mmproj: str | None,
    lora: tuple[str, ...],
    data_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Report what is installed and what works, and how to fix what does not.

    Asks the server if one is running; never starts one.
    """
    from tenuto.errors import ConfigurationError
    from tenuto.paths import expanded
    from tenuto.runtime.config import load
    from tenuto.runtime.terminal.doctor import run

    given = (("data_dir", data_dir), ("config", config), ("mmproj", mmproj), ("lora", lora))
    settings = load({name: value for name, value in given if value})
    try:
        path = None if mcp_config is None else expanded(mcp_config)
    except ValueError as error:
        raise ConfigurationError(f"--mcp-config {mcp_config}: {error}") from None
    sys.exit(run(settings, models=models, mcp_config=path, json=as_json))


@click.group(
    epilog="""\b
Examples:
  tenuto sessions list
  tenuto sessions export trip -o trip.json
  tenuto sessions import trip.json --as trip-2
  tenuto sessions fork trip trip-b --at 4
  tenuto sessions delete trip --yes

"""
    + EXIT_CODES
)
def sessions() -> None:
    """List, show, export, import, fork and delete sessions. If no server is running, one is started."""


@sessions.command("list")
@click.option("--all", "implicit", is_flag=True, help="Include unnamed sessions, which are found by their history.")
@JSON_OPTION
@with_server
def list_(implicit: bool, as_json: bool, **given: Any) -> None:
    """List sessions, most recently used first."""
    from tenuto.runtime.terminal.sessions import print_sessions

    with remote_of(given) as remote:
        print_sessions(remote, implicit=implicit, as_json=as_json)


@sessions.command()
@click.argument("name")
@JSON_OPTION
@with_server
def show(name: str, as_json: bool, **given: Any) -> None:
    """Show the conversation in a session."""
    from tenuto.runtime.terminal.sessions import show as show_

    with remote_of(given) as remote:
        show_(remote, name, as_json=as_json)


@sessions.command()
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True),
    default="-",
    help="File to write; default: stdout.",
)
@with_server
def export(name: str, output: Any, **given: Any) -> None:
    """Export a session as a JSON document, with the exact tokens its model saw."""
    from tenuto.runtime.terminal.sessions import export as export_

    with remote_of(given) as remote:
        export_(remote, name, output)


@sessions.command("import")
@click.argument("file")
@click.option("--as", "name", metavar="NAME", help="Name for the imported session; default: its own.")
@JSON_OPTION
@with_server
def import_(file: str, name: str | None, as_json: bool, **given: Any) -> None:
    """Import an exported session; FILE may be `-` for stdin."""
    from tenuto.runtime.terminal.sessions import import_ as run
    from tenuto.runtime.terminal.sessions import read_document

    text = read_document(file)
    with remote_of(given) as remote:
        run(remote, text, name, file, as_json=as_json)


@sessions.command()
@click.argument("name")
@click.argument("new_name", required=False)
@click.option(
    "--at", type=click.IntRange(min=0), metavar="ITEMS", help="Number of items to copy; default: all complete turns."
)
@JSON_OPTION
@with_server
def fork(name: str, new_name: str | None, at: int | None, as_json: bool, **given: Any) -> None:
    """Copy a session, or its beginning, into a new one."""
    from tenuto.runtime.terminal.sessions import fork as fork_

    with remote_of(given) as remote:
        fork_(remote, name, new_name, at, as_json=as_json)


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON_OPTION
@with_server
def delete(names: tuple[str, ...], yes: bool, as_json: bool, **given: Any) -> None:
    """Delete sessions, cancelling their open runs."""
    from tenuto.runtime.terminal.sessions import delete as delete_

    with remote_of(given) as remote:
        delete_(remote, names, yes=yes, as_json=as_json)


@click.command(
    epilog="""\b
Install it:
  bash: echo 'eval "$(tenuto completion bash)"' >> ~/.bashrc
  zsh:  echo 'eval "$(tenuto completion zsh)"' >> ~/.zshrc
  fish: tenuto completion fish > ~/.config/fish/completions/tenuto.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell completion script for `tenuto`."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "tenuto", "_TENUTO_COMPLETE").source())
