"""The file of `--warm`: beginnings of conversations, each as the body of a chat completion without what a user says."""

import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from tenuto.errors import ConfigurationError, InvalidRequest, NotFound
from tenuto.json_bounds import MOST_VALUES, has_at_most
from tenuto.runtime.dialects.openai.chat.request import read_chat
from tenuto.runtime.engine.messages import THE_SERVER
from tenuto.runtime.http.auth import holder
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.warm_prefixes import MOST_PREFIXES, WarmPrefix
from tenuto.runtime.setting_values import KEY_NAME
from tenuto.sessions.items import SystemItem
from tenuto.sessions.principal import Principal

MOST_BYTES = 16 << 20
_OWN = ("name", "principals")
_FIELDS = ("model", "messages", "tools", "tool_choice", "reasoning_effort", "chat_template_kwargs", "max_tool_rounds")
"""What of a body the model reads before a user's words."""
_SAID = ("a", "1", "\nb")
"""Three texts that have no beginning in common, whatever a tokeniser makes of them."""


def read_warm_file(path: Path, names: Set[str]) -> tuple[WarmPrefix, ...]:
    """Read the file; `names` are those that keys have.

    Raises:
        ConfigurationError: it cannot be read or is not valid; the text names the file, the prefix and the field.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    if len(data) > MOST_BYTES or not has_at_most(data, MOST_VALUES):
        raise ConfigurationError(f"{path}: has more than {MOST_BYTES} bytes, or more than {MOST_VALUES} JSON values")
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, list):
        raise ConfigurationError(f"{path}: must be a JSON list of prefixes")
    if len(value) > MOST_PREFIXES:
        raise ConfigurationError(f"{path}: has {len(value)} prefixes; {MOST_PREFIXES} are the most")
    found: list[WarmPrefix] = []
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{path}: prefix {index}: must be a JSON object")
        found += _prefixes(f"{path}: prefix {index}", entry, names, {one.name for one in found})
    return tuple(found)


def check_models(path: Path, prefixes: tuple[WarmPrefix, ...], models: Models) -> None:
    """Raises ConfigurationError where a prefix is of a model that is not served."""
    for prefix in prefixes:
        try:
            models.meant(prefix.model)
        except NotFound as error:
            raise ConfigurationError(f"{path}: prefix {prefix.name!r}: model: {error}") from error


def _prefixes(place: str, entry: Mapping[str, Any], names: Set[str], taken: Set[str]) -> list[WarmPrefix]:
    name = entry.get("name")
    if not isinstance(name, str) or not KEY_NAME.fullmatch(name):
        raise ConfigurationError(f"{place}: name: 1 to 64 letters, digits and ._-")
    place = f"{place} ({name!r})"
    if name in taken:
        raise ConfigurationError(f"{place}: name: another prefix is already called that")
    if unknown := [field for field in entry if field not in (*_OWN, *_FIELDS)]:
        raise ConfigurationError(
            f"{place}: {unknown[0]}: not a field of a prefix; these are {', '.join((*_OWN, *_FIELDS))}"
        )
    messages = entry.get("messages", [])
    if not isinstance(messages, list):
        raise ConfigurationError(f"{place}: messages: must be a list")
    if not messages and not entry.get("tools"):
        raise ConfigurationError(f"{place}: messages: there are neither messages nor tools to read")
    body = {field: entry[field] for field in _FIELDS if field in entry}
    found = []
    for principal in _principals(place, entry, names):
        turns = []
        for said in _SAID:
            whole = {**body, "messages": [*messages, {"role": "user", "content": said}]}
            try:
                turn = read_chat(json.dumps(whole).encode(), {}, principal=Principal(principal)).turn
            except InvalidRequest as error:
                raise ConfigurationError(f"{place}: {error}") from error
            turns.append(turn)
        for at, item in enumerate(turns[0].items[:-1]):
            if not isinstance(item, SystemItem):
                raise ConfigurationError(f"{place}: messages[{at}].role: only system and developer come before a user")
        found.append(WarmPrefix(name, tuple(turns), principal))
    return found


def _principals(place: str, entry: Mapping[str, Any], names: Set[str]) -> list[str]:
    """Whose it is: everybody's, where it does not say."""
    given = entry.get("principals")
    if given is None:
        return [THE_SERVER]
    if not isinstance(given, list) or not given:
        raise ConfigurationError(f"{place}: principals: must be a list of names; leave it out for everybody")
    for each in given:
        if not isinstance(each, str) or each not in names:
            raise ConfigurationError(f"{place}: principals: no key of [[keys]] has the name {each!r}")
    return [holder("", each).id for each in dict.fromkeys(given)]
