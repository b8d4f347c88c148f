"""Changes of a client's own file: its text before to its text after, with all that is not ours left as it stands. Pure."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tomlkit
import tomlkit.exceptions
import tomlkit.items

from tenuto.runtime.terminal.client_files import jsonc

Change = Callable[[str], str]
"""From the text that is there to the text that shall be; without a file, the text is empty. Raises ValueError."""

Members = Sequence[tuple[tuple[str, ...], Any]]
"""What is to be set, each by the way to it."""


def whole(text: str) -> Change:
    """The whole of a file that is ours."""
    return lambda _: text


def in_json(members: Members) -> Change:
    """Set members of a JSON file, which may have comments."""
    return lambda text: jsonc.with_members(text, members)


def in_toml(members: Members) -> Change:
    """Set values of a TOML file."""
    return lambda text: _with_values(text, members)


def _with_values(text: str, members: Members) -> str:
    try:
        wanted = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if all(_found(wanted, way) == value for way, value in members):
        return text
    try:
        document = tomlkit.parse(text)
        for way, value in members:
            _set(document, way, value)
            _set(wanted, way, value)
        after = tomlkit.dumps(document)
        after = after if text.endswith("\n\n") else after.rstrip("\n") + "\n"
    except tomlkit.exceptions.TOMLKitError as exc:
        raise ValueError(str(exc)) from exc
    if tomllib.loads(after) != wanted:
        raise ValueError("its tables are written in a way that cannot be added to")
    return after


def _found(place: Any, way: Sequence[str]) -> Any:
    for name in way:
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _set(place: Any, way: Sequence[str], value: Any) -> None:
    for step, name in enumerate(way[:-1]):
        if name not in place:
            place[name] = tomlkit.table(is_super_table=True) if isinstance(place, tomlkit.TOMLDocument) else {}
        place = place[name]
        if not isinstance(place, Mapping):
            raise ValueError(f"{'.'.join(way[: step + 1])} is not a table")
    name = way[-1]
    is_new_table = isinstance(value, Mapping) and name not in place and isinstance(place, tomlkit.items.Table)
    place[name] = {**value} if isinstance(value, Mapping) else value
    if is_new_table:
        place[name].add(tomlkit.nl())  # a line between it and the next table
