"""What MCP clients have to know of this server, each in the form and the place of its own configuration. Pure.

Those that have a command for it change their own files; the files of the others are plain JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.launch.agent import Installed

NAME = "tenuto"


@dataclass(frozen=True, slots=True)
class Served:
    """The server: a program that speaks for it on stdin and stdout, or an endpoint.

    `variable` is the environment variable of the client that holds the endpoint's key; no file has the key itself.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    variable: str = ""


@dataclass(frozen=True, slots=True)
class McpClient:
    """A client. It has either a command that adds a server, or a file below the user's home that names them."""

    name: str
    title: str
    adds: Callable[[Served], Sequence[str]] | None = None
    installed: Callable[[Served], Installed] | None = None


def _stdio(served: Served) -> dict[str, object]:
    command, *arguments = served.command
    return {"command": command, "args": arguments}


def _http(served: Served, variable: str, **more: str) -> dict[str, object]:
    """An entry by URL. `variable` is how the client writes a variable of its environment."""
    headers = {"headers": {"Authorization": f"Bearer {variable % served.variable}"}} if served.variable else {}
    return {**more, "url": served.url, **headers}


def _claude(served: Served) -> Sequence[str]:
    entry = _http(served, "${%s}", type="http") if served.url else {"type": "stdio", **_stdio(served)}
    return ("claude", "mcp", "add-json", "--scope", "user", NAME, json.dumps(entry))


def _codex(served: Served) -> Sequence[str]:
    if not served.url:
        return ("codex", "mcp", "add", NAME, "--", *served.command)
    key = ("--bearer-token-env-var", served.variable) if served.variable else ()
    return ("codex", "mcp", "add", NAME, "--url", served.url, *key)


def _claude_desktop(served: Served) -> Installed:
    if served.url:
        raise ConfigurationError(
            "Claude Desktop's file has programs alone; leave out --url, and it starts `tenuto mcp`"
        )
    return _file(
        f"{_settings_folder()}/Claude/claude_desktop_config.json", "mcpServers", _stdio(served), "start it anew"
    )


def _cursor(served: Served) -> Installed:
    entry = _http(served, "${env:%s}") if served.url else _stdio(served)
    return _file(".cursor/mcp.json", "mcpServers", entry, "allow it in Cursor's settings, under MCP")


def _vscode(served: Served) -> Installed:
    entry = _http(served, "${env:%s}", type="http") if served.url else {"type": "stdio", **_stdio(served)}
    return _file(f"{_settings_folder()}/Code/User/mcp.json", "servers", entry, "start it in the list of MCP servers")


def _opencode(served: Served) -> Installed:
    entry = _http(served, "{env:%s}", type="remote") if served.url else {"type": "local", "command": [*served.command]}
    return _file(".config/opencode/opencode.json", "mcp", entry, "start opencode anew")


def _file(path: str, key: str, entry: Mapping[str, object], use: str) -> Installed:
    return Installed(path, use, merged={key: {NAME: entry}})


def _settings_folder() -> str:
    """Where programs with windows keep their settings, below the user's home."""
    return {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}.get(sys.platform, ".config")


CLIENTS = {
    client.name: client
    for client in (
        McpClient("claude", "Claude Code", adds=_claude),
        McpClient("claude-desktop", "Claude Desktop", installed=_claude_desktop),
        McpClient("cursor", "Cursor", installed=_cursor),
        McpClient("vscode", "VS Code", installed=_vscode),
        McpClient("codex", "Codex", adds=_codex),
        McpClient("opencode", "opencode", installed=_opencode),
    )
}
