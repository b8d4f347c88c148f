"""What a request gives a chat template beside messages and tools: `enable_thinking`, `reasoning_effort` and their like.

Values of JSON, bounded, in one form whatever order they came in. No template here.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

MOST_VARIABLES = 32
MOST_CHARACTERS = 4096
"""Of all of them as JSON."""
MOST_DEPTH = 4
"""How deep lists and objects may stand in each other."""

RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})
"""What a template is rendered with in any case."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class TemplateVariables:
    """Some variables with their values, as one text: the JSON of an object with sorted keys, empty without any."""

    text: str = ""

    @staticmethod
    def of(values: Mapping[str, Any]) -> "TemplateVariables":
        """These variables.

        Raises:
            ValueError: one has no name that a template could read, or a reserved one; a value is not JSON; or it is
                too much. The text says so in words.
        """
        if len(values) > MOST_VARIABLES:
            raise ValueError(f"{len(values)} variables are more than {MOST_VARIABLES}")
        for name, value in values.items():
            if name in RESERVED:
                raise ValueError(f"{name!r} has a field of its own")
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:64]!r} is not the name of a variable")
            if not _is_flat(value, MOST_DEPTH):
                raise ValueError(f"the value of {name!r} is nested more than {MOST_DEPTH} deep")
        try:
            text = json.dumps(dict(values), sort_keys=True, ensure_ascii=False, allow_nan=False) if values else ""
        except (TypeError, ValueError) as error:
            raise ValueError(f"a value is not JSON: {error}") from error
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"they have {len(text)} characters as JSON; {MOST_CHARACTERS} are the most")
        return TemplateVariables(text)

    @property
    def values(self) -> dict[str, Any]:
        """A copy of the values by their names."""
        return dict(json.loads(self.text)) if self.text else {}

    def only(self, names: Collection[str]) -> "TemplateVariables":
        """Those of these names."""
        values = self.values
        kept = {name: value for name, value in values.items() if name in names}
        return self if len(kept) == len(values) else TemplateVariables.of(kept)

    def __bool__(self) -> bool:
        return bool(self.text)


NO_VARIABLES = TemplateVariables()


def _is_flat(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flat(one, depth - 1) for one in inner)
