"""The commands by which a person logs in and out at the MCP servers that the model may use."""

from functools import partial
from typing import Any

import anyio
import click

MOST_WAIT_S = 3600.0
_OPTIONS = (
    click.option("--mcp-config", metavar="FILE", help="The `mcpServers` file that names the server."),
    click.option("--data-dir", metavar="DIR", help="Data folder in which the login is kept."),
    click.option("--config", metavar="FILE", help="Settings file; default: ./tenuto.toml, if it exists."),
)


def _with_options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@click.option(
    "--wait-s",
    type=click.FloatRange(1, MOST_WAIT_S),
    default=300.0,
    show_default=True,
    help="Seconds to wait for the login.",
)
@_with_options
def login(name: str, no_browser: bool, wait_s: float, **given: Any) -> None:
    """Log in at the MCP server NAME, in a browser on this machine, and keep the login for the runtime."""
    from tenuto.errors import ServerUnreachable
    from tenuto.tools.host.login import login as log_in
    from tenuto.tools.host.oauth_fetch import LoginFailed

    def show(url: str) -> None:
        click.echo(f"To log in at {name}, open:\n\n  {url}\n")
        if not no_browser:
            click.launch(url)

    url, settings = _server(name, given)
    try:
        anyio.run(partial(log_in, url, settings, show, wait_s))
    except (LoginFailed, TimeoutError) as exc:
        raise ServerUnreachable(f"no login at {name}: {exc or 'its file is in use'}") from None
    except OSError as exc:
        raise ServerUnreachable(f"no login at {name}: {exc.strerror or exc}") from None
    click.echo(f"Logged in at {name}. A running server uses it at once.")


@click.command()
@click.argument("name")
@_with_options
def logout(name: str, **given: Any) -> None:
    """Forget the login at the MCP server NAME."""
    from tenuto.tools.host.token_file import TokenFile

    url, settings = _server(name, given)
    assert settings.folder is not None
    was = anyio.run(TokenFile(settings.folder, settings.name, url).remove)
    click.echo(f"Forgot the login at {name}." if was else f"There was no login at {name}.")


def _server(name: str, given: dict[str, Any]) -> tuple[str, Any]:
    """The server's URL, and how to log in there. Raises ConfigurationError."""
    from tenuto.errors import ConfigurationError
    from tenuto.runtime.config import load
    from tenuto.tools.mcp_config import HttpTarget, kept_in, read_mcp_config

    settings = load({option: value for option, value in given.items() if value is not None})
    if settings.mcp_config is None:
        raise ConfigurationError("name the file of MCP servers: --mcp-config FILE")
    configs = {each.name: each for each in kept_in(read_mcp_config(settings.mcp_config), settings.data_dir)}
    if name not in configs:
        raise ConfigurationError(
            f"{settings.mcp_config} has no server {name!r}; it has: {', '.join(configs) or 'none'}"
        )
    target = configs[name].target
    if not isinstance(target, HttpTarget) or target.oauth is None:
        why = "is a program" if not isinstance(target, HttpTarget) else "has a key, a command or `oauth: false`"
        raise ConfigurationError(f"nobody logs in at {name}: its entry {why}")
    return target.url, target.oauth
