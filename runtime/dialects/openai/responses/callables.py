"""What a response's calls are called: by the model, which knows one name for each tool, and on the wire. Pure.

A function in a namespace has both names on the wire and one for the model. A custom tool takes a text: the model calls
it as a function with that text as its one argument.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

_LONGEST = 128
_DIGEST = 8
_INPUT = "input"


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool as the client knows it."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


def model_name(name: str, namespace: str | None = None) -> str:
    """The name by which a model knows a tool; another one where the plain one cannot name a tool."""
    if namespace is None:
        return name
    plain = f"{namespace.rstrip('_')}__{name}"
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", plain)
    if clean == plain and len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256(json.dumps([namespace, name]).encode()).hexdigest()[:_DIGEST]
    return f"{clean[: _LONGEST - _DIGEST - 1]}_{digest}"


def wrapped(text: str) -> str:
    """The arguments of a custom tool's call."""
    return json.dumps({_INPUT: text}, ensure_ascii=False)


def unwrapped(arguments: str) -> str:
    """The text that a custom tool is called with; what the model wrote where it is not wrapped."""
    try:
        value = from_json(arguments)  # what is too deep, or cannot be sent again, is a ValueError too
    except ValueError:
        return arguments
    text = value.get(_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def wrapper(pattern: str | None = None) -> dict[str, Any]:
    """The parameters of a custom tool, whose text matches a regular expression where there is one."""
    text: dict[str, Any] = {"type": "string"}
    if pattern is not None:
        text["pattern"] = f"^(?:{pattern})$"
    return {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
