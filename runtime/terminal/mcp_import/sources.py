"""Where the servers to import are: the file of a client, or one that is named; and how its client writes them."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.config_files import jsonc
from tenuto.runtime.terminal.config_files.reading import text_of
from tenuto.runtime.terminal.mcp_clients import CLIENTS
from tenuto.runtime.terminal.mcp_import import codex, mcp_servers, opencode
from tenuto.runtime.terminal.mcp_import.references import Reading, Resolve, editors, literal

MOST_SERVERS = 256
_TOML = ".toml"
_OF_PROJECTS = (".vscode", ".cursor", ".codex")
"""The folders in which projects have the files of clients."""


@dataclass(frozen=True, slots=True)
class Form:
    """How servers are written: as members of `key`, each of which `read` makes an entry of ours, with what stands for
    something else in it by `resolve`."""

    key: str
    read: Callable[[Mapping[str, Any], Reading], dict[str, Any]]
    resolve: Resolve = editors


FORMS = {
    "claude": Form(CLIENTS["claude"].key, mcp_servers.read),
    "claude-desktop": Form(CLIENTS["claude-desktop"].key, mcp_servers.read, literal),
    "cursor": Form(CLIENTS["cursor"].key, mcp_servers.read),
    "vscode": Form(CLIENTS["vscode"].key, mcp_servers.read),
    "codex": Form(CLIENTS["codex"].key, codex.read, literal),
    "opencode": Form(CLIENTS["opencode"].key, opencode.read, literal),
}
ANY = Form("mcpServers", partial(mcp_servers.read, ours=True))
"""A file that any client may have written, or somebody for this server."""


@dataclass(frozen=True, slots=True)
class Source:
    """The servers of a file. `inputs` are what its client asks for, by their ids; `workspace` is its project."""

    path: Path
    form: Form
    servers: Mapping[str, Any] = field(repr=False)
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    workspace: Path | None = None


def of_client(client: str, home: Path, folder: Path, environ: Mapping[str, str]) -> list[Source]:
    """What a client has for its user: for this folder alone, where it knows such, and for all.

    Raises:
        ConfigurationError: there is no such file, it cannot be read, or it names no servers.
    """
    path = CLIENTS[client].file(home, environ)
    if client == "opencode" and not path.exists():
        path = path.with_suffix(".jsonc")
    there = _content(path, is_toml=path.suffix == _TOML)
    form = FORMS[client]
    found = _found(path, form, there, None)
    if client == "claude":  # it writes what is for one folder into the same file
        of_folder = _member(_member(there, "projects"), str(folder))
        found = [*_found(path, form, of_folder, folder), *found]
    return _some(path, found)


def of_file(path: Path, client: str | None) -> list[Source]:
    """What a file has, in a client's form, or in the one that it seems to be written in.

    Raises:
        ConfigurationError: as `of_client`.
    """
    is_toml = path.suffix == _TOML
    there = _content(path, is_toml=is_toml)
    if client is not None:
        form = FORMS[client]
    elif is_toml:
        form = FORMS["codex"]
    else:
        forms = (ANY, FORMS["vscode"], FORMS["opencode"])
        form = next((form for form in forms if isinstance(there.get(form.key), dict)), ANY)
    return _some(path, _found(path, form, there, _workspace(path.absolute())))


def _workspace(path: Path) -> Path | None:
    if path.parent.name in _OF_PROJECTS:
        return path.parent.parent
    return path.parent if path.name == ".mcp.json" else None


def _content(path: Path, *, is_toml: bool) -> Mapping[str, Any]:
    text = text_of(path, is_own=True)
    if text is None:
        raise ConfigurationError(f"there is no file {path}; name another by --from FILE")
    try:
        there = tomllib.loads(text) if is_toml else jsonc.read(text)
    except RecursionError:
        raise ConfigurationError(f"{path} cannot be read: it is nested too deep") from None
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{path} cannot be read: not TOML: {exc}") from None
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc}") from None
    if not isinstance(there, dict):
        raise ConfigurationError(f"{path} cannot be read: it is not an object")
    return there


def _found(path: Path, form: Form, there: Mapping[str, Any], workspace: Path | None) -> list[Source]:
    """The servers of this part of a file. VS Code's settings have them one step further down, opencode's may."""
    nested = _member(there, "mcp")
    if form is FORMS["vscode"] and form.key not in there:
        there = nested
    elif form is FORMS["opencode"] and "type" not in _member(nested, "servers"):
        there = {form.key: nested.get("servers", nested)}
    servers = there.get(form.key, {})
    if not isinstance(servers, dict):
        raise ConfigurationError(f"{path} cannot be read: {form.key} is not an object")
    if len(servers) > MOST_SERVERS:
        raise ConfigurationError(f"{path} has more than {MOST_SERVERS} servers")
    listed = there.get("inputs")
    inputs = {each["id"]: each for each in listed if _is_input(each)} if isinstance(listed, list) else {}
    return [Source(path, form, servers, inputs, workspace)] if servers else []


def _member(value: object, name: str) -> Mapping[str, Any]:
    """The object of that name; an empty one where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _is_input(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str)


def _some(path: Path, found: list[Source]) -> list[Source]:
    if not found:
        raise ConfigurationError(f"{path} names no MCP servers")
    return found
