"""Entries as opencode writes them. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from tenuto.runtime.terminal.mcp_import.references import NoCounterpart, Reading

_REFERENCE = re.compile(r"\{(env|file):([^}]*)\}")
_OAUTH = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}


def read(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """An entry of ours.

    Raises:
        NoCounterpart: there are no such servers here.
    """
    made: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "type":
                if value not in ("local", "remote"):
                    raise NoCounterpart(f"there are no servers of type {str(value)[:50]!r} here")
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
