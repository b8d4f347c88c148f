"""What is known of a program that connects to MCP servers: where its files are, and how a server is written there."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tenuto.runtime.terminal.mcp_clients.reading import Reading, Resolve, editors

PATIENCE_S = 300
"""What clients give a server to start: ours may have a model to load."""
CALL_S = 600
"""And a call of it: a turn of a model with tools."""


@dataclass(frozen=True, slots=True)
class Program:
    """This server, as a program that the client starts."""

    command: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """This server, as it is reached over HTTP. `key` is the environment variable with its key; None: it needs none."""

    url: str
    key: str | None = None


Server = Program | Address


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients look for their files."""

    home: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    platform: str = sys.platform

    def application(self, name: str) -> Path:
        """Where an application of that name keeps its settings on this platform."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return self.named("APPDATA", self.home / "AppData" / "Roaming") / name
        return self.named("XDG_CONFIG_HOME", self.home / ".config") / name

    def named(self, variable: str, otherwise: Path) -> Path:
        """The folder that an environment variable names."""
        given = self.environ.get(variable)
        return Path(given) if given else otherwise


@dataclass(frozen=True, slots=True)
class Source:
    """A file with servers, and the object with them in it, or the table. `workspace` is the project it belongs to."""

    path: Path
    way: tuple[str, ...]
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A client.

    `user` and `project` are the files of a user and of a project; one that has no file for projects has no `project`.
    `way` leads to the servers in a file, whose content it is given. `entry` writes a server as the client reads it, and
    raises ConfigurationError where the client has no such servers; `read` makes an entry of ours of one of the
    client's, with its references by `resolve`. `more` are further places that the client reads, those before which count more.
    """

    name: str
    title: str
    user: Callable[[Place], Path]
    project: str | None
    entry: Callable[[Server], dict[str, Any]]
    read: Callable[[Mapping[str, Any], Reading], dict[str, Any]]
    way: Callable[[Mapping[str, Any]], tuple[str, ...]]
    format: Literal["json", "toml"] = "json"
    resolve: Resolve = editors
    more: Callable[[Place], tuple[Source, ...]] = lambda _: ()
    use: str = "Start it anew to use it."

    def written(self, there: Mapping[str, Any], server: Server) -> dict[str, Any]:
        """The entry, with what somebody has added to the one that is there."""
        kept = {name: value for name, value in there.items() if name not in _OF_TRANSPORTS}
        if isinstance(server, Address):
            kept = {name: value for name, value in kept.items() if name not in _OF_PROGRAMS}
        return {**self.entry(server), **kept}


_OF_TRANSPORTS = frozenset(
    (
        *("type", "transport", "command", "args", "url", "serverUrl", "httpUrl", "headers"),
        *("http_headers", "env_http_headers", "bearer_token", "bearer_token_env_var"),
    )
)
_OF_PROGRAMS = frozenset(("env", "environment", "env_vars", "cwd", "envFile"))


def under(*names: str) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
    """The way of a client that has its servers in one place whatever else is there."""
    return lambda _: names
