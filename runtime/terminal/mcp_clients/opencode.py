"""opencode: `opencode.json` or `opencode.jsonc`, of the user's or of a project."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.runtime.terminal.mcp_clients.client import CALL_S, Address, Client, Place, Server
from tenuto.runtime.terminal.mcp_clients.reading import NoCounterpart, Reading, literal

_REFERENCE = re.compile(r"\{(env|file):([^}]*)\}")
_OAUTH = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}


def _user(place: Place) -> Path:
    folder = place.named("XDG_CONFIG_HOME", place.home / ".config") / "opencode"
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def _way(there: Mapping[str, Any]) -> tuple[str, ...]:
    """Its second version has them one step further down."""
    mcp = there.get("mcp")
    servers = mcp.get("servers") if isinstance(mcp, dict) else None
    return ("mcp", "servers") if isinstance(servers, dict) and "type" not in servers else ("mcp",)


def _entry(server: Server) -> dict[str, Any]:
    timeout = {"timeout": CALL_S * 1000}
    if isinstance(server, Address):
        key = {} if server.key is None else {"headers": {"Authorization": f"Bearer {{env:{server.key}}}"}}
        return {"type": "remote", "url": server.url, **key, **timeout}
    return {"type": "local", "command": [server.command, *server.args], **timeout}


def _read(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "type":
                if value not in ("local", "remote"):
                    raise NoCounterpart(f"there are no servers of type {value!r} here")
            case "command" if isinstance(value, list):
                words = [_text(f"command.{index}", each, reading) for index, each in enumerate(value)]
                made |= {"command": words[0] if words else "", "args": words[1:]}
            case "url" | "cwd":
                made[name] = _text(name, value, reading)
            case "environment" | "headers" if isinstance(value, dict):
                texts = {each: _text(f"{name}.{each}", given, reading) for each, given in value.items()}
                made["env" if name == "environment" else name] = texts
            case "enabled" | "disabled":
                made |= {"disabled": True} if value is (name == "disabled") else {}
            case "timeout" if isinstance(value, int):
                made["start_timeout_s"] = value / 1000
            case "oauth":
                made |= _oauth(value, reading)
            case _:
                reading.left.append(name)
    return made


def _oauth(value: Any, reading: Reading) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"oauth": value}
    reading.left += [f"oauth.{name}" for name in value if name not in _OAUTH]
    known = {_OAUTH[name]: _text(f"oauth.{name}", each, reading) for name, each in value.items() if name in _OAUTH}
    return {"oauth": known}


def _text(name: str, value: Any, reading: Reading) -> Any:
    """What is ours in the text stays as it is: there it means nothing, and `{env:NAME}` is what means something."""
    if not isinstance(value, str):
        return value

    def ours(found: re.Match[str]) -> str:
        if found[1] == "env" and re.fullmatch(r"[A-Za-z_]\w*", found[2], re.ASCII):
            return f"${{{found[2]}}}"
        reading.by_hand.append(f"{name} has {found[0]}")
        return found[0]

    return _REFERENCE.sub(ours, reading.text(name, value))


OPENCODE = Client(
    name="opencode",
    title="opencode",
    user=_user,
    project="opencode.json",
    entry=_entry,
    read=_read,
    way=_way,
    resolve=literal,
)
