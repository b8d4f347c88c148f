"""This server in the configuration of an MCP client: written where the client looks for it, or shown."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.client_files import jsonc, writing
from tenuto.runtime.terminal.client_files.changes import Change, in_json, in_toml
from tenuto.runtime.terminal.mcp_clients import claude
from tenuto.runtime.terminal.mcp_clients.client import Client, Place, Server

OTHERWISE = "--print shows what to add by hand"


def path_of(client: Client, place: Place, *, project: bool) -> Path:
    """The client's file, of the user or of the project in this folder.

    Raises:
        ConfigurationError: the client has no files for projects.
    """
    if not project:
        return client.user(place)
    if client.project is None:
        raise ConfigurationError(f"{client.title} has no configuration of a project: leave --project out")
    return place.folder / client.project


def shown(client: Client, name: str, server: Server) -> str:
    """The file as it would be if nothing else were in it."""
    return _change(client, name, server)("")


def install(client: Client, place: Place, name: str, server: Server, *, project: bool) -> list[str]:
    """Write it; what was done, in words.

    Raises:
        ConfigurationError: the client has no such servers, or its file cannot be added to.
        CommandFailed: Claude Code's own command has failed.
    """
    path = path_of(client, place, project=project)
    if client is claude.CLAUDE and not project:
        there, entry = _entries(client, path, name, server)
        done = None if there == entry else claude.add(path, name, entry, there)
        if done is not None:
            return done
    return writing.change(path, _change(client, name, server), OTHERWISE)


def content(text: str, client: Client) -> dict[str, Any]:
    """What a client's file says.

    Raises:
        ValueError: it is not what the client reads.
    """
    try:
        found = tomllib.loads(text) if client.format == "toml" else jsonc.read(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def found_at(there: Any, way: Sequence[str]) -> Any:
    """What the way leads to; None where there is nothing."""
    for name in way:
        there = there.get(name) if isinstance(there, Mapping) else None
    return there


def _entries(client: Client, path: Path, name: str, server: Server) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The entry that is there, and the one that shall be."""
    try:
        all_of_it = content(writing.text_of(path) or "", client)
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc}; {OTHERWISE}") from exc
    there = found_at(all_of_it, (*client.way(all_of_it), name))
    return there, client.written(there if isinstance(there, dict) else {}, server)


def _change(client: Client, name: str, server: Server) -> Change:
    """The change of a client's file that puts a server into it."""

    def changed(text: str) -> str:
        all_of_it = content(text, client)
        way = (*client.way(all_of_it), name)
        there = found_at(all_of_it, way)
        entry = client.written(there if isinstance(there, dict) else {}, server)
        return (in_toml if client.format == "toml" else in_json)([(way, entry)])(text)

    return changed


def as_json(value: Any) -> str:
    """JSON as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)
