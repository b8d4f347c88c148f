"""Servers of others as entries of ours: each is one that the runtime takes, or it is told why there is none.

No value of an entry is told: it may be a secret.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.mcp_import.references import NoCounterpart, Reading
from tenuto.runtime.terminal.mcp_import.sources import Source
from tenuto.tools.mcp_config import VARIABLE, parse_mcp_config

SERVERS = "mcpServers"
_STANDS_IN = "http://localhost"
"""The value of a variable that is not set, where it is looked at whether an entry is one at all: good for a URL too."""
_ALLOWING = ("permission", "tools", "sampling", "roots")
"""The keys of ours that say what a server may do."""


@dataclass(slots=True)
class Imported:
    """A server: its entry here, or None; and what is to be known of it, a sentence each.

    `is_us`: it is this server itself, and so left out without anything being wrong.
    """

    name: str
    path: Path
    entry: dict[str, Any] | None = field(default=None, repr=False)
    told: list[str] = field(default_factory=list)
    is_us: bool = False


def imported(sources: Sequence[Source], environ: Mapping[str, str]) -> list[Imported]:
    """All servers of these sources, in their order; of several of one name, the first."""
    found: dict[str, Imported] = {}
    for source in sources:
        for name, given in source.servers.items():
            one = _imported(name, given, source, environ)
            if name in found:
                found[name].told.append(f"a second one of this name, for all folders, is left out: {source.path}")
            else:
                found[name] = one
    return list(found.values())


def _imported(name: str, given: Any, source: Source, environ: Mapping[str, str]) -> Imported:
    made = Imported(name, source.path)
    reading = Reading(source.form.resolve, source.workspace, source.inputs)
    if not isinstance(given, dict):
        made.told.append("its entry is not an object")
        return made
    try:
        entry = source.form.read(given, reading)
        if reading.by_hand:
            entry["disabled"] = True
        check(json.dumps({SERVERS: {name: entry}}, allow_nan=False), str(source.path), environ)
        json.dumps({name: entry}, ensure_ascii=False).encode()
    except NoCounterpart as exc:
        made.told.append(str(exc))
    except ConfigurationError as exc:
        made.told.append(str(exc).removeprefix(f"{source.path}: server {name!r}: "))
    except UnicodeEncodeError:
        made.told.append("it has characters that are none in Unicode")
    except (TypeError, ValueError, RecursionError):
        made.told.append("it has values that JSON does not have, or that are nested too deep")
    else:
        made.is_us = _is_this_server(entry)
        if made.is_us:
            made.told.append("it is this server itself")
        else:
            made.entry = entry
            made.told += _notes(entry, given, reading, environ)
    return made


def check(text: str, source: str, environ: Mapping[str, str]) -> None:
    """Whether the runtime takes a file with this text, once all variables in it are set. Raises ConfigurationError."""
    named = {found[1] for found in VARIABLE.finditer(text)}
    parse_mcp_config(text, source, {**dict.fromkeys(named, _STANDS_IN), **environ})


def _is_this_server(entry: Mapping[str, Any]) -> bool:
    """Whether its program is `tenuto mcp`: what serves itself its own tools never comes to an end."""
    words = [PurePath(str(entry.get("command"))).name, *entry.get("args", [])]
    return any(words[index : index + 2] == ["tenuto", "mcp"] for index in range(len(words) - 1))


def _notes(
    entry: Mapping[str, Any], given: Mapping[str, Any], reading: Reading, environ: Mapping[str, str]
) -> Iterator[str]:
    yield from (f"{each} has no counterpart here and is left out" for each in reading.left)
    if reading.by_hand:
        yield f"it is disabled until you have seen to it: {'; '.join(reading.by_hand)}"
    variables = {found[1]: found[2] is not None for found in VARIABLE.finditer(json.dumps(entry))}
    asked = [each for each in variables if each in reading.asked]
    yield from (
        f"what its client asks for as {reading.asked[each]} is taken from the variable {each}" for each in asked
    )
    unset = [name for name, has_default in variables.items() if not has_default and name not in environ]
    if unset and not entry.get("disabled"):
        yield f"set before the server starts: {', '.join(unset)}"
    if allowed := [name for name in _ALLOWING if name in entry and name in given]:
        yield f"what it may do is taken over as it stands there: {', '.join(allowed)}"
    if kept := [".".join(way) for way in literals(entry)]:
        yield f"taken over as they are, in a file for its owner alone: {', '.join(kept)}"


def literals(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The values of an entry that may be secrets and stand in it as they are, not by a variable; by their places."""
    for place in ("env", "headers", "oauth"):
        values = entry.get(place)
        for name, value in values.items() if isinstance(values, dict) else ():
            is_secret = place != "oauth" or name == "client_secret"
            if is_secret and value and not VARIABLE.search(str(value)):
                yield place, name
