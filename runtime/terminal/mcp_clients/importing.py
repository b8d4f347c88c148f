"""The servers of another program's configuration as entries of our own file. No value of theirs is ever shown."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.client_files import jsonc, writing
from tenuto.runtime.terminal.client_files.changes import in_json
from tenuto.runtime.terminal.mcp_clients import mcp_servers
from tenuto.runtime.terminal.mcp_clients.catalogue import CLIENTS
from tenuto.runtime.terminal.mcp_clients.client import Client, Place, Source, under
from tenuto.runtime.terminal.mcp_clients.install import content, found_at
from tenuto.runtime.terminal.mcp_clients.reading import NoCounterpart, Reading
from tenuto.tools.mcp_config import VARIABLE, parse_mcp_config
from tenuto.tools.names import sanitised

SERVERS = "mcpServers"
_OWN = Client(
    name="",
    title="an mcpServers file",
    user=lambda place: place.home,
    project=None,
    entry=partial(mcp_servers.entry, reference="${%s}"),
    read=partial(mcp_servers.read, ours=True),
    way=under(SERVERS),
)


@dataclass(slots=True)
class Imported:
    """One server: its entry here, or why there is none; and what is to be known of it, in words."""

    name: str
    path: Path
    entry: dict[str, Any] | None = None
    told: list[str] = field(default_factory=list)


def read(source: str, place: Place) -> list[Imported]:
    """The servers of a client, or of a file.

    Raises:
        ConfigurationError: a file cannot be read, or there is no server.
    """
    named = place.folder / Path(source).expanduser()
    client = CLIENTS.get(source)
    files = [(client, each) for each in _sources(client, place)] if client else [_file(named)]
    found: dict[str, Imported] = {}
    for reader, each in files:
        for one in _servers(reader, each):
            found.setdefault(one.name, one)
    if not found:
        looked = ", ".join(dict.fromkeys(str(each.path) for _, each in files))
        raise ConfigurationError(f"there are no MCP servers in {looked}")
    return list(found.values())


def write(path: Path, servers: list[Imported], *, replace: bool) -> list[str]:
    """Put the servers into our own file, and say in words what became of each.

    Raises:
        ConfigurationError: the file is not one of ours, or cannot be written.
    """
    try:
        there = jsonc.read(writing.text_of(path) or "")
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc}") from exc
    known = found_at(there, (SERVERS,))
    labels = {sanitised(label): label for label in known} if isinstance(known, dict) else {}
    members: list[tuple[tuple[str, ...], Any]] = []
    told: list[str] = []
    for one in servers:
        label = labels.get(sanitised(one.name))
        if one.entry is None:
            told += [f"{one.name}: left out: {line}" for line in one.told]
        elif label is not None and known[label] == one.entry:
            told.append(f"{one.name}: {path} has it already")
        elif label is not None and not replace:
            told.append(f"{one.name}: left alone: {path} has a server {label}; --replace takes this one instead")
        else:
            labels[sanitised(one.name)] = label or one.name
            members.append(((SERVERS, label or one.name), one.entry))
            told += [f"{one.name}: imported from {one.path}", *(f"{one.name}: {line}" for line in one.told)]
    if members:
        told += writing.change(path, in_json(members), "mend it, or name another file")
    return told


def _sources(client: Client, place: Place) -> list[Source]:
    """Where a client has servers, those first that count most."""
    of_project = [] if client.project is None else [Source(place.folder / client.project, (), place.folder)]
    return [*client.more(place), *of_project, Source(client.user(place), ())]


def _file(path: Path) -> tuple[Client, Source]:
    """Whose format a file has."""
    text = writing.text_of(path)
    if text is None:
        raise ConfigurationError(
            f"there is no file {path}, and no client of that name; the clients are {', '.join(CLIENTS)}"
        )
    workspace = path.parent if path.name == ".mcp.json" else None
    workspace = path.parent.parent if path.parent.name in (".vscode", ".cursor", ".codex") else workspace
    if path.suffix == ".toml":
        return CLIENTS["codex"], Source(path, (), workspace)
    there = _content(path, text, _OWN)
    kinds = {SERVERS: _OWN, "servers": CLIENTS["vscode"], "mcp": CLIENTS["opencode"]}
    kind = next((kinds[name] for name in kinds if isinstance(there.get(name), dict)), None)
    if kind is None:
        raise ConfigurationError(f"{path} has no MCP servers: none of {', '.join(kinds)} is an object in it")
    return kind, Source(path, (), workspace)


def _content(path: Path, text: str, client: Client) -> dict[str, Any]:
    try:
        return content(text, client)
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc}") from exc


def _servers(client: Client, source: Source) -> list[Imported]:
    text = writing.text_of(source.path)
    if text is None:
        return []
    there = _content(source.path, text, client)
    way = source.way or client.way(there)
    servers = found_at(there, way)
    if servers is None:
        return []
    if not isinstance(servers, dict):
        raise ConfigurationError(f"{source.path} cannot be read: {'.'.join(way)} is not an object")
    listed = there.get("inputs")
    inputs = {each["id"]: each for each in listed if _is_input(each)} if isinstance(listed, list) else {}
    return [
        _imported(client, Imported(name, source.path), given, Reading(client.resolve, source.workspace, inputs))
        for name, given in servers.items()
    ]


def _is_input(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str)


def _imported(client: Client, made: Imported, given: Any, reading: Reading) -> Imported:
    """An entry that can be used, one that is switched off until somebody has seen to it, or the reason for none."""
    if not isinstance(given, dict):
        made.told.append("its entry is not an object")
        return made
    try:
        entry = client.read(given, reading)
        if reading.by_hand:
            entry["disabled"] = True
        variables = _variables(entry)
        text = json.dumps({SERVERS: {made.name: entry}})
        parse_mcp_config(text, str(made.path), dict.fromkeys(variables, "http://localhost"))
    except NoCounterpart as exc:
        made.told.append(str(exc))
        return made
    except ConfigurationError as exc:
        made.told.append(str(exc).removeprefix(f"{made.path}: server {made.name!r}: "))
        return made
    made.entry = entry
    made.told += [f"{each} has no counterpart here and is left out" for each in reading.left]
    if reading.by_hand:
        made.told.append(f"switched off until you have seen to it: {'; '.join(reading.by_hand)}")
    asked = [each for each in variables if each in reading.asked]
    made.told += [f"what VS Code asks for as {reading.asked[each]} is taken from {each} here" for each in asked]
    unset = [name for name, has_default in variables.items() if not has_default and name not in os.environ]
    if unset and not entry.get("disabled"):
        made.told.append(f"set before the server starts: {', '.join(unset)}")
    return made


def _variables(entry: Mapping[str, Any]) -> dict[str, bool]:
    """The environment variables that an entry names, and whether each has a default."""
    found = VARIABLE.finditer(json.dumps(entry, ensure_ascii=False))
    return {each[1]: each[2] is not None for each in found}
