"""The commands around `tenuto mcp`: this server in clients' configurations, their servers in ours, a registry's entry."""

import os
from pathlib import Path
from typing import Any

import click

_CLIENTS = ("claude", "claude-desktop", "cursor", "vscode", "codex", "opencode")
_NAME = r"[A-Za-z0-9_-]{1,48}"


def before_it(*taken: str) -> dict[str, Any]:
    """The options that were given before the subcommand, to `tenuto mcp` itself.

    Raises:
        UsageError: the subcommand has no use for one of them.
    """
    from tenuto.runtime.config import flag

    context = click.get_current_context()
    flags: dict[str, Any] = dict(context.obj or {})
    for name in flags:
        if name not in taken:
            does = f"takes {', '.join(map(flag, taken))} alone" if taken else "takes none"
            raise click.UsageError(f"{flag(name)} is for tenuto mcp itself: {context.command_path} {does}")
    return flags


@click.command(
    epilog="""\b
Examples:
  tenuto mcp install claude                    Claude Code starts tenuto mcp, for this user
  tenuto mcp install cursor --project          in this folder alone
  tenuto mcp --model ./model.gguf install codex
                                               with options of tenuto mcp, which stand before install
  tenuto mcp install vscode --http --print     show how to reach the running server over HTTP
"""
)
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option("--print", "printed", is_flag=True, help="Print it instead; write nothing.")
@click.option("--project", is_flag=True, help="Write the file of the project in this folder, not that of the user.")
@click.option("--http", is_flag=True, help="Let the client reach the running server over HTTP; it starts nothing.")
@click.option("--url", metavar="URL", help="The same for the server at URL.")
@click.option("--name", default="tenuto", show_default=True, help="What the client calls the server.")
@click.option("--data-dir", metavar="DIR", help="Data folder of the server.")
@click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists.")
def install(client: str, printed: bool, project: bool, http: bool, url: str | None, name: str, **given: Any) -> None:
    """Connect an MCP client with Tenuto: claude (Claude Code), claude-desktop, cursor, vscode, codex or opencode.

    The client starts `tenuto mcp`, unless --http or --url is given. Everything else in its configuration stays as it is, and
    the file that was there is kept beside it. No key is written.
    """
    import re

    from tenuto.runtime.config import Settings
    from tenuto.runtime.terminal.mcp_clients import this_server
    from tenuto.runtime.terminal.mcp_clients.catalogue import CLIENTS
    from tenuto.runtime.terminal.mcp_clients.client import Address, Place, Server
    from tenuto.runtime.terminal.mcp_clients.install import install, path_of, shown

    if not re.fullmatch(_NAME, name):
        raise click.UsageError("--name: give 1 to 48 letters, digits, _ and -")
    over_http = http or url is not None
    taken = ("data_dir", "config") if over_http else tuple(Settings.model_fields)
    flags = before_it(*taken) | {option: value for option, value in given.items() if value is not None}
    server: Server = this_server.address(url, flags) if over_http else this_server.program(flags)
    chosen, place = CLIENTS[client], Place(Path.home(), Path.cwd(), os.environ)
    if printed:
        click.echo(f"For {path_of(chosen, place, project=project)}:", err=True)
        click.echo(shown(chosen, name, server), nl=False)
    else:
        for line in install(chosen, place, name, server, project=project):
            click.echo(line)
        click.echo(chosen.use)
    if isinstance(server, Address):
        click.echo(f"The server must be at {server.url} then.", err=printed)
        if server.key is not None:
            click.echo(f"Its key is taken from the client's environment: {server.key}.", err=printed)


@click.command(
    "import",
    epilog="""\b
Examples:
  tenuto mcp import cursor --mcp-config mcp.json
  tenuto mcp import ./claude_desktop_config.json --mcp-config mcp.json --replace
""",
)
@click.argument("source", metavar="CLIENT|FILE")
@click.option("--replace", is_flag=True, help="Replace servers of the same names.")
@click.option("--mcp-config", metavar="FILE", help="The `mcpServers` file to write to; it is made if there is none.")
@click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists.")
def import_servers(source: str, replace: bool, **given: Any) -> None:
    """Take the MCP servers of another program into Tenuto's own file.

    CLIENT is claude (Claude Code), claude-desktop, cursor, vscode, codex or opencode; FILE is a file of any of these.
    What has no counterpart is told by name. Servers of a name that is there already are left alone, unless --replace is
    given. Exit code 1: a server was left out.
    """
    from tenuto.errors import ConfigurationError
    from tenuto.runtime.config import load
    from tenuto.runtime.terminal.mcp_clients import importing
    from tenuto.runtime.terminal.mcp_clients.client import Place

    flags = before_it("mcp_config", "config") | {option: value for option, value in given.items() if value is not None}
    path = load(flags).mcp_config
    if path is None:
        raise ConfigurationError("name the file of MCP servers to write to: --mcp-config FILE")
    servers = importing.read(source, Place(Path.home(), Path.cwd(), os.environ))
    for line in importing.write(path, servers, replace=replace):
        click.echo(line)
    if any(each.entry is None for each in servers):
        click.get_current_context().exit(1)


@click.command(
    epilog="""\b
Examples:
  tenuto mcp entry io.github.OWNER/tenuto > server.json
  tenuto mcp entry org.example/tenuto --url https://llm.example.org
"""
)
@click.argument("name")
@click.option("--url", metavar="URL", help="A server that everybody can reach, to be listed too.")
def entry(name: str, url: str | None) -> None:
    """Print this version's entry for a registry of MCP servers (server.json) under NAME, your namespace and a name."""
    from tenuto.runtime.terminal.mcp_clients.install import as_json
    from tenuto.runtime.terminal.mcp_clients.registry_entry import registry_entry

    before_it()
    click.echo(as_json(registry_entry(name, url)))
