"""Entries as Claude's programs, Cursor and VS Code write them, and ours: much alike, with fields of their own. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from tenuto.runtime.terminal.mcp_import.references import NoCounterpart, Reading
from tenuto.tools.mcp_entry import Entry

_SILENT = frozenset({"description", "autoApprove", "alwaysAllow", "icon", "gallery", "version", "enabled"})
"""Fields that say nothing to whoever starts or reaches a server."""
_SHARED = frozenset(("command", "args", "env", "cwd", "url", "headers", "type", "transport", "oauth"))
_OURS = (frozenset(Entry.model_fields) | {"headersCommand", "bearerCommand"}) - _SHARED
_KINDS = frozenset({"stdio", "http", "streamable-http", "streamableHttp", "streamable_http", "sse"})


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
    if not isinstance(value, str) or value not in _KINDS:
        raise NoCounterpart(f"there are no servers of type {str(value)[:50]!r} here")
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
