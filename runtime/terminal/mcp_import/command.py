"""`tenuto mcp import` as click has it. What it does is in modules that load when it is called."""

import os
from pathlib import Path

import click

from tenuto.runtime.terminal.mcp_clients import CLIENTS

MOST_CHARACTERS = 1000
"""Of a line; what others wrote is in it."""


@click.command(
    "import",
    epilog="""\b
Examples:
  tenuto mcp import cursor
  tenuto mcp import vscode --into servers.json --print
  tenuto mcp import --from project/.mcp.json --replace
  tenuto mcp import --from server.mcpb
""",
)
@click.argument("client", type=click.Choice([*CLIENTS]), required=False)
@click.option("--from", "source", metavar="FILE", help="Read this file instead of the client's own for its user.")
@click.option(
    "--into",
    "target",
    metavar="FILE",
    help="The `mcpServers` file to add to; default: the setting mcp_config, else ./mcp.json.",
)
@click.option("--replace", "replaces", is_flag=True, help="Replace servers that have the same names there.")
@click.option("--print", "is_shown", is_flag=True, help="Show what would be added, without secrets, and do nothing.")
@click.option("--data-dir", metavar="DIR", help="Data folder, in which bundles are unpacked.")
@click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists.")
def import_servers(
    client: str | None,
    source: str | None,
    target: str | None,
    replaces: bool,
    is_shown: bool,
    **given: str | None,
) -> None:
    """Take the MCP servers of CLIENT, of a file or of an MCP bundle (.mcpb) into a file of Tenuto's.

    Names that are there already are kept. Whatever has no counterpart here is told. Exit code 1: a server was left out.
    """
    from tenuto.runtime.terminal.mcp_import.run import Request, run
    from tenuto.runtime.terminal.words import shortened

    if client is None and source is None:
        raise click.UsageError(f"name a client ({', '.join(CLIENTS)}), or a file by --from FILE")
    settings = {name: value for name, value in given.items() if value is not None}
    request = Request(client, _path(source), _path(target), replaces=replaces, is_shown=is_shown, settings=settings)
    done = run(request, Path.home(), Path.cwd(), os.environ)
    if done.shown:
        click.echo(done.shown)
    for line in done.told:
        click.echo(shortened(line.encode("utf-8", "replace").decode(), MOST_CHARACTERS), err=is_shown)
    if not done.is_whole:
        click.get_current_context().exit(1)


def _path(given: str | None) -> Path | None:
    from tenuto.paths import expanded

    try:
        return None if given is None else expanded(given)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None
