"""Entries as Claude's programs, Cursor and VS Code write them: much alike, each with some fields of its own."""

from collections.abc import Callable, Mapping
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.mcp_clients.client import Address, Server
from tenuto.runtime.terminal.mcp_clients.reading import NoCounterpart, Reading
from tenuto.tools.mcp_entry import Entry

_SILENT = frozenset({"description", "autoApprove", "alwaysAllow", "icon", "gallery", "version", "enabled"})
"""Fields that say nothing to whoever starts or reaches a server."""
_OURS = frozenset(Entry.model_fields) - {
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "type",
    "transport",
    "oauth",
}
_KINDS = frozenset({"stdio", "http", "streamable-http", "streamableHttp", "streamable_http", "sse"})


def entry(server: Server, reference: str) -> dict[str, Any]:
    """A server's entry. `reference` is how the client writes an environment variable, with a `%s` for its name."""
    if not isinstance(server, Address):
        return {"type": "stdio", "command": server.command, "args": list(server.args)}
    made: dict[str, Any] = {"type": "http", "url": server.url}
    if server.key is not None:
        made["headers"] = {"Authorization": f"Bearer {reference % server.key}"}
    return made


def program_alone(server: Server) -> dict[str, Any]:
    """The entry of a client whose file has programs alone."""
    if isinstance(server, Address):
        raise ConfigurationError(
            "Claude Desktop's file has programs alone: install it without --http, or add the server's URL as a"
            " connector in its settings"
        )
    return {"command": server.command, "args": list(server.args)}


def read(given: Mapping[str, Any], reading: Reading, *, ours: bool = False) -> dict[str, Any]:
    """An entry of ours. `ours`: fields that only we have are taken as they are.

    Raises:
        NoCounterpart: there are no such servers here.
    """
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name in _READERS:
            made |= _READERS[name](value, reading)
        elif ours and name in _OURS:
            made[name] = value
        elif name == "envFile":
            reading.by_hand.append("its envFile is not read here: name its variables in env")
        elif name not in _SILENT:
            reading.left.append(name)
    if given.get("enabled") is False:
        made["disabled"] = True
    return made


def _kind(value: Any, _: Reading) -> dict[str, Any]:
    if value not in _KINDS:
        raise NoCounterpart(f"there are no servers of type {value!r} here")
    return {} if value in ("stdio", "http") else {"type": value}


def _oauth(value: Any, reading: Reading) -> dict[str, Any]:
    """Claude Code's, and ours."""
    if not isinstance(value, dict):
        return {"oauth": value}
    return {"oauth": _renamed(value, _OAUTH, "oauth", reading)}


def _auth(value: Any, reading: Reading) -> dict[str, Any]:
    """Cursor's."""
    if not isinstance(value, dict):
        reading.left.append("auth")
        return {}
    scopes = value.get("scopes")
    joined = {**value, "scopes": " ".join(map(str, scopes))} if isinstance(scopes, list) else value
    return {"oauth": _renamed(joined, _AUTH, "auth", reading)}


_OAUTH = {
    **{name: name for name in ("client_id", "client_secret", "scope", "issuer", "grant", "callback_port")},
    "client_metadata_url": "client_metadata_url",
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "scopes": "scope",
    "callbackPort": "callback_port",
}
_AUTH = {"CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret", "scopes": "scope"}


def _renamed(value: Mapping[str, Any], names: Mapping[str, str], field: str, reading: Reading) -> dict[str, Any]:
    reading.left += [f"{field}.{name}" for name in value if name not in names]
    return {names[name]: reading.text(f"{field}.{name}", given) for name, given in value.items() if name in names}


_READERS: dict[str, Callable[[Any, Reading], dict[str, Any]]] = {
    "command": lambda value, reading: {"command": reading.text("command", value)},
    "args": lambda value, reading: {"args": reading.texts("args", value)},
    "env": lambda value, reading: {"env": reading.named_texts("env", value)},
    "cwd": lambda value, reading: {"cwd": reading.text("cwd", value)},
    "url": lambda value, reading: {"url": reading.text("url", value)},
    "headers": lambda value, reading: {"headers": reading.named_texts("headers", value)},
    "headersHelper": lambda value, reading: {"headers_command": reading.text("headersHelper", value)},
    "disabled": lambda value, _: {"disabled": value},
    "type": _kind,
    "transport": _kind,
    "oauth": _oauth,
    "auth": _auth,
}
