"""What stands for something else in an entry of another program, as we write it, and what has no counterpart. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.tools.mcp_config import VARIABLE

_REFERENCE = re.compile(r"\$\{([^}]*)\}")

Resolve = Callable[[str, "Reading"], str | None]
"""From what stands between the braces of a reference to what stands for it here; None: somebody has to say."""


class NoCounterpart(Exception):
    """There are no such servers here; the text says why."""


@dataclass(slots=True)
class Reading:
    """What is found out while one entry is read. No value of the entry is kept in it: it may be a secret.

    `inputs` are what VS Code asks for, by their ids. `workspace` is the project that the file belongs to.
    """

    resolve: Resolve
    workspace: Path | None = None
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """Fields without a counterpart."""
    by_hand: list[str] = field(default_factory=list)
    """What somebody has to replace before the server can be used, in words."""
    asked: dict[str, str] = field(default_factory=dict)
    """The environment variable for each input that is used."""

    def text(self, name: str, value: Any) -> Any:
        """A text with its references as ours are written; anything else as it is."""
        if not isinstance(value, str):
            return value

        def ours(found: re.Match[str]) -> str:
            told = self.resolve(found[1], self)
            if told is None:
                self.by_hand.append(f"{name} has ${{{found[1]}}}")
            return found[0] if told is None else told

        return _REFERENCE.sub(ours, value)

    def texts(self, name: str, value: Any) -> Any:
        """The same for each of a list."""
        if not isinstance(value, list):
            return value
        return [self.text(f"{name}.{index}", each) for index, each in enumerate(value)]

    def named_texts(self, name: str, value: Any) -> Any:
        """The same for each value of an object. Numbers become texts, and what is unset by null is told."""
        if not isinstance(value, dict):
            return value
        self.left += [f"{name}.{each}" for each, given in value.items() if given is None]
        return {
            each: self.text(f"{name}.{each}", str(given) if type(given) in (int, float) else given)
            for each, given in value.items()
            if given is not None
        }


def literal(inside: str, _: Reading) -> str | None:
    """The references of programs that have none: what would be one here has to be seen to."""
    return None if VARIABLE.fullmatch(f"${{{inside}}}") else f"${{{inside}}}"


def editors(inside: str, reading: Reading) -> str | None:
    """The references of Claude Code, Cursor and VS Code."""
    kind, colon, name = inside.partition(":")
    match inside:
        case "userHome":
            return "${HOME}"
        case "pathSeparator" | "/":
            return "/"
        case "workspaceFolder" | "workspaceFolderBasename" | "cwd":
            if reading.workspace is None:
                return None
            return reading.workspace.name if inside.endswith("Basename") else str(reading.workspace)
    if kind == "input" and colon:
        return _input(name, reading)
    return f"${{{inside}}}" if VARIABLE.fullmatch(f"${{{inside}}}") else None


def _input(name: str, reading: Reading) -> str | None:
    """What VS Code asks for, as an environment variable of its name."""
    variable = re.sub(r"\W", "_", name.upper(), flags=re.ASCII)
    variable = f"_{variable}" if variable[:1].isdigit() else variable
    if not variable or reading.asked.setdefault(variable, name) != name:
        return None
    given = reading.inputs.get(name, {})
    default = given.get("default")
    if isinstance(default, str) and not given.get("password") and "}" not in default:
        return f"${{{variable}:-{default}}}"
    return f"${{{variable}}}"
