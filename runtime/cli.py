"""The commands. Each is imported only when it is called, so that `tenuto --help` and wrong usage answer at once."""

import sys
from collections.abc import Callable
from typing import Any

import click

from tenuto import __version__
from tenuto.errors import ConfigurationError, TenutoError

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

_SECONDS_TO_START = 300.0


class Commands(click.Group):
    """A group that knows its commands by name and one line of help, and makes one when it is asked for."""

    def __init__(self, table: dict[str, tuple[Callable[[], click.Command], str]], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order of the table."""
        return [*self._table]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Make the command."""
        return self._table[cmd_name][0]() if cmd_name in self._table else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List them without making them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])


def _serve() -> click.Command:
    def serve(**given: Any) -> None:
        from tenuto.runtime.config import load

        settings = load(_flags(given))  # what is wrong with them is told before the server's parts are imported
        from tenuto.runtime.serve import run

        run(settings)

    return click.Command(
        "serve",
        callback=serve,
        params=_options(),
        help="Load the models and serve them. Every option can also be set as an environment variable TENUTO_... or a"
        " key in tenuto.toml.",
    )


def _mcp() -> click.Command:
    def mcp(**given: Any) -> None:
        if (command := click.get_current_context().invoked_subcommand) is not None:
            if _flags(given):
                raise click.UsageError(f"options for {command} stand after it: tenuto mcp {command} ... [OPTIONS]")
            return
        from tenuto.runtime.config import command_line, load
        from tenuto.runtime.data_folder.local_server import LocalServer
        from tenuto.runtime.mcp.stdio import run

        flags = _flags(given)
        run(LocalServer(load(flags).data_dir, command_line(flags), _SECONDS_TO_START))

    from tenuto.runtime.terminal.mcp_import.command import import_servers
    from tenuto.runtime.terminal.mcp_install import install
    from tenuto.runtime.terminal.mcp_login import login, logout

    return click.Group(
        "mcp",
        callback=mcp,
        invoke_without_command=True,
        commands=[install, import_servers, login, logout],
        params=_options(),
        help="Speak MCP on stdin and stdout on behalf of the server that owns the data folder. If none is running,"
        " one is started in the background with the options given here, on a free port, and keeps running afterwards.",
    )


def _options() -> list[click.Parameter]:
    """An option for every setting. Values stay text: the settings check them, wherever they come from."""
    from tenuto.runtime.config import Settings, flag, takes_several

    return [
        click.Option([flag(name), name], is_flag=True, default=None, help=field.description)
        if field.annotation is bool
        else click.Option(
            [flag(name), name], multiple=takes_several(name), help=field.description, metavar=_metavar(name)
        )
        for name, field in Settings.model_fields.items()
    ]


def _metavar(name: str) -> str:
    endings = {"_s": "SECONDS", "_bytes": "BYTES", "dir": "DIR", "config": "FILE"}
    return next((shown for ending, shown in endings.items() if name.endswith(ending)), name.rpartition("_")[2].upper())


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in given.items() if value not in (None, ())}


def _for_people(name: str) -> Callable[[], click.Command]:
    def made() -> click.Command:
        from tenuto.runtime.terminal import commands

        command: click.Command = getattr(commands, name)
        return command

    return made


def _loaded(name: str) -> Callable[[], click.Command]:
    def made() -> click.Command:
        from tenuto.runtime.terminal import loaded_models

        command: click.Command = getattr(loaded_models, name)
        return command

    return made


def _models() -> click.Command:
    from tenuto.runtime.terminal.model_commands import models

    return models


COMMANDS: dict[str, tuple[Callable[[], click.Command], str]] = {
    "serve": (_serve, "Load the models and serve them over HTTP and MCP."),
    "mcp": (_mcp, "Speak MCP on stdin and stdout."),
    "chat": (_for_people("chat"), "Chat with a model in the terminal."),
    "launch": (_for_people("launch"), "Start a coding agent against this server: codex, claude, opencode or qwen."),
    "sessions": (_for_people("sessions"), "List, show, export, import, fork and delete sessions."),
    "ps": (_loaded("ps"), "List the models that the running server has loaded."),
    "load": (_loaded("load"), "Load a model in the running server, or replace it by a new version."),
    "unload": (_loaded("unload"), "Unload a model in the running server."),
    "models": (_models, "Pull, list, show, verify, roll back and remove stored models."),
    "doctor": (_for_people("doctor"), "Report what is installed and what works, and how to fix what does not."),
    "completion": (_for_people("completion"), "Print the shell completion script."),
}

cli = click.version_option(__version__, prog_name="tenuto", message="%(prog)s %(version)s")(
    Commands(COMMANDS, name="tenuto", help="Serve local models that call tools, over OpenAI's API and MCP.")
)


def main() -> None:
    """Run the command line. Exit code 2: wrong usage or configuration; 1: anything else that went wrong."""
    try:
        cli.main(prog_name="tenuto")
    except TenutoError as exc:
        message = " ".join(str(exc).split())
        click.echo(f"tenuto: {message}", err=True)
        sys.exit(EXIT_CONFIGURATION if isinstance(exc, ConfigurationError) else EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
