"""Our own file of MCP servers, with what is imported in it. What is there stays, byte by byte."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.errors import ConfigurationError
from tenuto.runtime.terminal.config_files import jsonc
from tenuto.runtime.terminal.config_files.reading import text_of
from tenuto.runtime.terminal.config_files.writing import change
from tenuto.runtime.terminal.mcp_import.imported import SERVERS, Imported, check, literals
from tenuto.tools.names import sanitised

HIDDEN = "(hidden)"
_OTHERWISE = "mend it, or name another file by --into"
_NAMING_SECRETS = ("key", "token", "secret", "password", "auth", "credential")


@dataclass(slots=True)
class Plan:
    """What is to be added to a file, by the labels there, and a line on each server."""

    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    same: list[str] = field(default_factory=list)
    """Those that are there as they are."""
    told: list[str] = field(default_factory=list)

    def shown(self, environ: Mapping[str, str]) -> str:
        """The entries, without what may be a secret.

        Raises:
            ConfigurationError: as `write`.
        """
        try:
            self._after(text_of(self.path, is_own=True) or "", environ)
        except ValueError as exc:
            raise ConfigurationError(f"{self.path} cannot be added to: {exc}; {_OTHERWISE}") from None
        return json.dumps({SERVERS: {label: _shown(entry) for label, entry in self.entries.items()}}, indent=2)

    def write(self, environ: Mapping[str, str]) -> list[str]:
        """Write the file, if there is anything to add; what was done, in words.

        Raises:
            ConfigurationError: it is not one that the runtime takes, or cannot be written; it is as it was.
        """
        if not self.entries:
            return []
        is_private = any(_shown(entry) != entry for entry in self.entries.values())
        return change(
            self.path, lambda text: self._after(text, environ), _OTHERWISE, is_own=True, is_private=is_private
        )

    def _after(self, text: str, environ: Mapping[str, str]) -> str:
        """The file's text with the entries in it."""
        after = jsonc.with_members(text, [((SERVERS, label), entry) for label, entry in self.entries.items()])
        if self.entries:
            check(after, str(self.path), environ)
        return after


def planned(path: Path, servers: Sequence[Imported], *, replaces: bool) -> Plan:
    """What becomes of these servers in that file. A name that is taken is kept, unless `replaces`.

    Raises:
        ConfigurationError: the file cannot be read, or is none of ours.
    """
    there = _servers(path)
    labels = {sanitised(label): label for label in there}
    plan = Plan(path)
    for one in servers:
        label = labels.get(sanitised(one.name))
        if one.entry is None:
            plan.told += [f"{one.name}: left out: {line}" for line in one.told]
        elif label in plan.entries:
            plan.told.append(f"{one.name}: left out: it would have the name of {label} here")
        elif label is not None and there[label] == one.entry:
            plan.same.append(label)
            plan.told.append(f"{one.name}: {path} has it already")
        elif label is not None and not replaces:
            plan.told.append(f"{one.name}: left alone: {path} has a server {label}; --replace takes this one instead")
        else:
            label = label or one.name
            labels[sanitised(label)] = label
            plan.entries[label] = one.entry
            plan.told += [f"{one.name}: from {one.path}", *(f"{one.name}: {line}" for line in one.told)]
    if plan.entries and (others := [label for label in there if label not in plan.entries]):
        plan.told.append(f"{path} has besides: {', '.join(others)}")  # whoever wrote it, they will be started too
    return plan


def _servers(path: Path) -> Mapping[str, Any]:
    try:
        there = jsonc.read(text_of(path, is_own=True) or "")
    except ValueError as exc:
        raise ConfigurationError(f"{path} cannot be added to: {exc}; {_OTHERWISE}") from None
    servers = there.get(SERVERS, {}) if isinstance(there, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(f"{path} cannot be added to: it is no object with {SERVERS}; {_OTHERWISE}")
    return servers


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in entry.items() if name not in ("args", "url")}
    for place, name in literals(entry):
        shown[place] = {**shown[place], name: HIDDEN}
    if "args" in entry:
        shown["args"] = _shown_words(entry["args"])
    if "url" in entry:
        shown["url"] = _shown_url(entry["url"])
    return {name: shown[name] for name in entry}


def _shown_words(words: Sequence[str]) -> list[str]:
    """Arguments, but for those that follow an option for a secret, or are part of one."""
    shown: list[str] = []
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if value and _names_a_secret(option):
            shown.append(option + equals + HIDDEN)
        elif index and words[index - 1].startswith("-") and _names_a_secret(words[index - 1]) and word[:1] != "-":
            shown.append(HIDDEN)
        else:
            shown.append(_shown_url(word) if "://" in word else word)
    return shown


def _names_a_secret(option: str) -> bool:
    return any(word in option.lower() for word in _NAMING_SECRETS)


def _shown_url(url: str) -> str:
    """A URL without what stands in it for a login, and without its query."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    before, question, _ = (host + slash + path).partition("?")
    return f"{scheme}{separator}{HIDDEN + '@' if host != authority else ''}{before}{question and '?' + HIDDEN}"
