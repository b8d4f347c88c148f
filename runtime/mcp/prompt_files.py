"""A folder of prompts for MCP clients: one TOML file each, read anew whenever somebody asks. No transport.

    title = "Review a change"
    description = "Ask for a review."

    [[arguments]]
    name = "language"
    description = "What the change is written in."
    required = true
    values = ["python", "rust"]

    [[messages]]
    text = "You review changes in {{language}}."

A prompt has the name of its file. `{{name}}` stands for what a client gives for an argument.
"""

import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tenuto.errors import InvalidRequest, NotFound

logger = logging.getLogger(__name__)

MOST_PROMPTS = 200
MOST_FILE_BYTES = 256 << 10
MOST_CHARACTERS = 1 << 20
"""Of a prompt with its arguments put in."""
_SUFFIX = ".toml"
_NAME = r"[A-Za-z0-9_-]{1,64}"
_PLACE = re.compile(r"\{\{\s*(" + _NAME + r")\s*\}\}")

Name = Annotated[str, Field(pattern=f"^{_NAME}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Argument(_Model):
    """What a client gives. `values` are those that can be completed; others are taken as well."""

    name: Name
    title: str | None = None
    description: str | None = None
    required: bool = False
    values: tuple[str, ...] = ()


class Message(_Model):
    """A message of the conversation that a prompt begins."""

    text: str
    role: Literal["user", "assistant"] = "user"


class Prompt(_Model):
    """A file's content."""

    title: str | None = None
    description: str | None = None
    arguments: tuple[Argument, ...] = ()
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]

    def filled(self, given: Mapping[str, str]) -> list[Message]:
        """The messages with the arguments in their places; one that is not given leaves nothing.

        Raises:
            InvalidRequest: an argument is missing or unknown, or all together is too long.
        """
        known = {argument.name for argument in self.arguments}
        missing = [one.name for one in self.arguments if one.required and one.name not in given]
        if missing:
            raise InvalidRequest(f"the argument {missing[0]!r} is missing", missing[0])
        if unknown := sorted(given.keys() - known):
            there = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(f"there is no argument {unknown[0][:64]!r}; the arguments are: {there}", "arguments")
        longest = max(map(len, given.values()), default=0)
        length = sum(len(one.text) + longest * len(_PLACE.findall(one.text)) for one in self.messages)
        if length > MOST_CHARACTERS:
            raise InvalidRequest(f"the prompt would have more than {MOST_CHARACTERS} characters", "arguments")
        return [
            Message(text=_PLACE.sub(lambda found: _value(found, known, given), one.text), role=one.role)
            for one in self.messages
        ]


def _value(found: re.Match[str], known: set[str], given: Mapping[str, str]) -> str:
    """What stands in a place; braces around anything but an argument's name are text."""
    return given.get(found[1], "") if found[1] in known else found[0]


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """The prompts of a folder; none where there is no folder. Its methods block for as long as files take."""

    folder: Path | None

    def all(self) -> dict[str, Prompt]:
        """By name, in the order of the names. A file that is none is left out, and told in the log."""
        found: dict[str, Prompt] = {}
        for path in self._files():
            try:
                found[path.stem] = _read(path)
            except (OSError, ValueError) as why:
                logger.warning("the prompt file %s is left out: %s", path, why)
        return found

    def get(self, name: str) -> Prompt:
        """One of them. Raises NotFound."""
        prompts = self.all()
        if name not in prompts:
            raise NotFound("prompt", name, [*prompts])
        return prompts[name]

    def _files(self) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        named = (path for path in self.folder.iterdir() if path.suffix == _SUFFIX and re.fullmatch(_NAME, path.stem))
        return sorted(path for path in named if path.is_file())[:MOST_PROMPTS]


def _read(path: Path) -> Prompt:
    """Raises OSError, and ValueError with what is wrong in words."""
    if path.stat().st_size > MOST_FILE_BYTES:
        raise ValueError(f"it has more than {MOST_FILE_BYTES} bytes")
    try:
        return Prompt.model_validate(tomllib.loads(path.read_text()))
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
