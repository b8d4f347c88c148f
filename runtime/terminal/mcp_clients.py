"""The MCP clients of a machine: where each names its servers, and how it is told of this one. Pure.

Those that have a command for it change their own files; the files of the others are JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenuto.errors import ConfigurationError

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
    """A client, and the file below the user's home that names its servers, as members of `key`.

    `variable` is the environment variable that names another folder for that file. A server is added by a command of
    the client's (`adds`), or as an `entry` in the file, which is then used as `use` says.
    """

    name: str
    title: str
    path: str
    key: str
    variable: str = ""
    adds: Callable[[Served], Sequence[str]] | None = None
    entry: Callable[[Served], Mapping[str, object]] | None = None
    use: str = ""

    def file(self, home: Path, environ: Mapping[str, str]) -> Path:
        """Where the file is."""
        folder = environ.get(self.variable) if self.variable else None
        return Path(folder) / Path(self.path).name if folder else home / self.path


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


def _claude_desktop(served: Served) -> Mapping[str, object]:
    if served.url:
        raise ConfigurationError(
            "Claude Desktop's file has programs alone; leave out --url, and it starts `tenuto mcp`"
        )
    return _stdio(served)


def _cursor(served: Served) -> Mapping[str, object]:
    return _http(served, "${env:%s}") if served.url else _stdio(served)


def _vscode(served: Served) -> Mapping[str, object]:
    return _http(served, "${env:%s}", type="http") if served.url else {"type": "stdio", **_stdio(served)}


def _opencode(served: Served) -> Mapping[str, object]:
    return _http(served, "{env:%s}", type="remote") if served.url else {"type": "local", "command": [*served.command]}


_SETTINGS = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}.get(sys.platform, ".config")
"""Where programs with windows keep their settings, below the user's home."""

CLIENTS = {
    client.name: client
    for client in (
        McpClient("claude", "Claude Code", ".claude.json", "mcpServers", "CLAUDE_CONFIG_DIR", adds=_claude),
        McpClient(
            "claude-desktop",
            "Claude Desktop",
            f"{_SETTINGS}/Claude/claude_desktop_config.json",
            "mcpServers",
            entry=_claude_desktop,
            use="start it anew",
        ),
        McpClient(
            "cursor",
            "Cursor",
            ".cursor/mcp.json",
            "mcpServers",
            entry=_cursor,
            use="allow it in Cursor's settings, under MCP",
        ),
        McpClient(
            "vscode",
            "VS Code",
            f"{_SETTINGS}/Code/User/mcp.json",
            "servers",
            entry=_vscode,
            use="start it in the list of MCP servers",
        ),
        McpClient("codex", "Codex", ".codex/config.toml", "mcp_servers", "CODEX_HOME", adds=_codex),
        McpClient(
            "opencode",
            "opencode",
            ".config/opencode/opencode.json",
            "mcp",
            entry=_opencode,
            use="start opencode anew",
        ),
    )
}
