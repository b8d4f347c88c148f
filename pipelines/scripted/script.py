"""The script: its file, its rules, and which of them answers a conversation. Pure, but for reading the file."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tenuto.errors import ModelLoadFailed

_LONGEST_DELAY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """What stands before an answer."""

    system: str = ""
    user: str = ""
    tool: str | None = None
    """The results since the last answer; None where the user spoke last."""
    turn: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say, with all groups filled in."""

    text: str = ""
    raw: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    delay_s: float = 0.0
    fail: Literal["forward", "sampler"] | None = None
    fail_at: int = 0


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _CallRule(_Strict):
    name: str
    arguments: dict[str, Any] = {}


def _compiles(expression: str) -> str:
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return expression


_Expression = Annotated[str, AfterValidator(_compiles)]


class Rule(_Strict):
    """Conditions and an answer; see the package's docstring."""

    user: str | None = None
    user_contains: str | None = None
    user_matches: _Expression | None = None
    tool: str | None = None
    tool_contains: str | None = None
    tool_matches: _Expression | None = None
    system: str | None = None
    system_contains: str | None = None
    system_matches: _Expression | None = None
    turn: int | None = Field(default=None, ge=1)

    text: str = ""
    raw: str = ""
    reasoning: str = ""
    calls: tuple[_CallRule, ...] = ()
    delay_ms: float = Field(default=0, ge=0, le=_LONGEST_DELAY_MS)
    fail: Literal["forward", "sampler"] | None = None
    fail_at: int = Field(default=0, ge=0)

    def answer(self, seen: Conversation) -> Answer | None:
        """Give the answer if all conditions hold."""
        if self.turn not in (None, seen.turn):
            return None
        if seen.tool is not None and self._asks_for("user") and not self._asks_for("tool"):
            return None
        groups: dict[str, str] = {}
        for name, text in (("system", seen.system), ("user", seen.user), ("tool", seen.tool)):
            found = self._match(name, text)
            if found is None:
                return None
            groups |= found
        return self._fill(groups | _texts(seen))

    def _asks_for(self, name: str) -> bool:
        return any(getattr(self, name + kind) is not None for kind in ("", "_contains", "_matches"))

    def _match(self, name: str, text: str | None) -> dict[str, str] | None:
        """Give the groups found in one text; None where a condition on it does not hold."""
        if not self._asks_for(name):
            return {}
        exact, part = getattr(self, name), getattr(self, f"{name}_contains")
        expression = getattr(self, f"{name}_matches")
        if text is None or exact not in (None, text) or (part is not None and part not in text):
            return None
        if expression is None:
            return {}
        match = re.search(expression, text)
        if match is None:
            return None
        numbered = {str(number): group or "" for number, group in enumerate(match.groups(), 1)}
        return numbered | {key: value or "" for key, value in match.groupdict().items()}

    def _fill(self, groups: dict[str, str]) -> Answer:
        calls = tuple(Call(_put(call.name, groups), _to_json(_put(call.arguments, groups))) for call in self.calls)
        return Answer(
            text=_put(self.text, groups),
            raw=_put(self.raw, groups),
            reasoning=_put(self.reasoning, groups),
            calls=calls,
            delay_s=self.delay_ms / 1000,
            fail=self.fail,
            fail_at=self.fail_at,
        )


class Embeds(_Strict):
    """That a script makes vectors of texts, or scores of pairs, and answers nothing."""

    width: int = Field(default=16, ge=1, le=4096)
    ranks: bool = False
    texts: int = Field(default=8, ge=1)
    delay_ms: float = Field(default=0, ge=0, le=_LONGEST_DELAY_MS)
    fail_contains: str | None = Field(default=None, min_length=1)


class Script(_Strict):
    """A script: how much it holds, and its rules."""

    slots: int = Field(default=4, ge=1, le=256)
    cells: int = Field(default=4096, ge=8)
    batch_tokens: int = Field(default=512, ge=1)
    drafts: int = Field(default=0, ge=0)
    can_truncate: bool = True
    can_batch: bool = True
    switches_reasoning: bool = False
    holds_calls: bool = True
    rules: tuple[Rule, ...] = ()
    embeds: Embeds | None = None

    def answer(self, seen: Conversation) -> Answer:
        """Give the answer of the first rule that holds, or the echo."""
        for rule in self.rules:
            answer = rule.answer(seen)
            if answer is not None:
                return answer
        return Answer(text=seen.user if seen.tool is None else seen.tool)


def read_script(path: Path) -> Script:
    """Read a script from a TOML file, or from a JSON file by that suffix.

    Raises:
        ModelLoadFailed: there is no such file, or it is not a script; the text says where.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return Script.model_validate(given)
    except OSError as error:
        raise ModelLoadFailed(f"the script {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ModelLoadFailed(f"the script {path} is wrong at {place or 'its top'}: {first['msg']}") from error
    except ValueError as error:
        raise ModelLoadFailed(f"the script {path} cannot be read: {error}") from error


class _Groups(Template):
    """`${name}` and `${1}`; what is unknown stays as it is."""

    idpattern = r"(?!)"
    braceidpattern = r"\w+"


def _texts(seen: Conversation) -> dict[str, str]:
    return {"system": seen.system, "user": seen.user, "tool": seen.tool or ""}


def _put(value: Any, groups: dict[str, str]) -> Any:
    match value:
        case str():
            return _Groups(value).safe_substitute(groups)
        case list():
            return [_put(entry, groups) for entry in value]
        case dict():
            return {key: _put(entry, groups) for key, entry in value.items()}
        case _:
            return value


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)  # TOML has dates, which are strings in JSON
