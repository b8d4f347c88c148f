"""Kinds of tools that nobody wrote: an action on a thing, and parameters whose roles are told in many words.

The world's kinds are few beside what there is, and a model can remember them. These have no end, so what stays is how a
role is told: "from", "until", "is in charge", "if it is there already".
"""

import random
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from train_embedded_model.kinds import WORLD, Ask, Kind, Param
from train_embedded_model.pools import Pools

_TYPES = {
    "integer": "integer", "small": "integer", "percent": "integer", "year": "integer", "number": "number",
    "price": "number", "emails": "array", "files": "array", "ids": "array", "names": "array", "numbers": "array",
    "words": "array",
}  # fmt: skip
"""Of values that are no strings."""
_ASKS = 12
_PLACE = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class _Part:
    """One or two parameters that are told together, and the ways to tell them, with what they say besides values."""

    params: tuple[Param, ...]
    tellings: tuple[Ask, ...]

    @property
    def key(self) -> str:
        """What it is known by: the key of its first parameter."""
        return self.params[0].key

    def resembles(self, other: "_Part") -> bool:
        """Whether a parameter or a telling of one could be taken for the other's."""
        names, others = ({name for param in part.params for name in param.names} for part in (self, other))
        marks, theirs = ([_PLACE.sub("{}", each.text) for each in part.tellings] for part in (self, other))
        return bool(names & others) or any(mark in their or their in mark for mark in marks for their in theirs)


def invented(pools: Pools) -> Kind:
    """A kind with one to four parts, each of one parameter or of two."""
    rng = pools.rng
    parts = _fitting(rng, rng.choices((1, 2, 3, 4), (25, 35, 25, 15))[0])
    action, thing = rng.choice(_table()["actions"]), pools.pick(rng.choice(("noun", "noun", "word")))
    doing, asked = rng.choice(action), rng.choice(action)
    required = {part.key for part in parts[1:] if part.params[0].required and rng.random() < 0.6} | {parts[0].key}
    params = [replace(param, required=part.key in required) for part in parts for param in part.params]
    rng.shuffle(params)
    asks = [_ask(rng, f"{asked} the {thing}", parts, required) for _ in range(_ASKS)]
    name = f"{doing}_{thing}".replace(" ", "_").replace("-", "_")
    described = tuple(form.format(doing=doing, thing=thing) for form in _DESCRIPTIONS)
    return Kind(name, "invented", (name,), described, tuple(asks), _RESULTS, tuple(params))


_DESCRIPTIONS = (
    "{doing} a {thing}", "{doing} the {thing}", "Lets you {doing} a {thing}.", "To {doing} one {thing}",
    "{thing}: {doing}", "Tool to {doing} the {thing} of a user",
)  # fmt: skip
_RESULTS = ("ok", "done", "accepted", '{"ok": true}', "It is done.")


def _fitting(rng: random.Random, count: int) -> list[_Part]:
    """Parts none of which could be taken for another; the first of them has a value to tell."""
    chosen = [rng.choice(_parts()[rng.choice(("role", "role", "pair"))])]
    for _ in range(8 * count):
        if len(chosen) == count:
            break
        part = rng.choice(_parts()[rng.choices(("role", "pair", "flag", "choice"), (55, 15, 16, 14))[0]])
        if not any(part.resembles(other) for other in chosen):
            chosen.append(part)
    return chosen


def _ask(rng: random.Random, head: str, parts: Sequence[_Part], required: set[str]) -> Ask:
    """A request that tells all that is required, and now and then what is not, in any order."""
    told = [part for part in parts if part.key in required or rng.random() < 0.45]
    tellings = [rng.choice(part.tellings) for part in told]
    rng.shuffle(tellings)
    given = {key: value for telling in tellings for key, value in telling.given.items()}
    texts = [telling.text for telling in tellings]
    if rng.random() < 0.85:
        texts.insert(0 if rng.random() < 0.75 else rng.randint(0, len(texts)), head)
    text = texts[0]
    for more in texts[1:]:
        text += rng.choice((" ", " ", " ", ", ", ", ", " and ", "; ", " - ")) + more
    return Ask(text[:1].upper() + text[1:] if rng.random() < 0.4 and text[0] != "{" else text, given)


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(WORLD.glob("roles_*.toml")):
        for name, entries in tomllib.loads(path.read_text()).items():
            found.setdefault(name, []).extend(entries)
    return found


@cache
def _parts() -> dict[str, tuple[_Part, ...]]:
    made = {"role": _roles, "pair": _pairs, "flag": _flags, "choice": _choices}
    return {name: tuple(part for entry in _table()[name] for part in make(entry)) for name, make in made.items()}


def _roles(entry: dict[str, Any]) -> Iterator[_Part]:
    key, tellings = entry["id"], tuple(Ask(_at(mark, x=entry["id"]), {}) for mark in entry["marks"])
    for pool in entry["pools"]:
        yield _Part((_param(key, pool, entry, ""),), tellings)


def _pairs(entry: dict[str, Any]) -> Iterator[_Part]:
    first, second = f"{entry['id']}_first", f"{entry['id']}_second"
    tellings = tuple(Ask(_at(mark, x=first, y=second), {}) for mark in entry["marks"])
    for pool in entry["pools"]:
        yield _Part((_param(first, pool, entry, "first_"), _param(second, pool, entry, "second_")), tellings)


def _param(key: str, pool: str, entry: dict[str, Any], side: str) -> Param:
    names, descriptions = entry[f"{side}names"], entry[f"{side}descriptions"]
    return Param(key, tuple(names), _TYPES.get(pool, "string"), pool, True, tuple(descriptions))


def _flags(entry: dict[str, Any]) -> Iterator[_Part]:
    key = entry["id"]
    param = Param(key, tuple(entry["names"]), "boolean", "bool", False, tuple(entry["descriptions"]))
    said = [(text, True) for text in entry["on"]] + [(text, False) for text in entry["off"]]
    yield _Part((param,), tuple(Ask(text, {key: value}) for text, value in said))


def _choices(entry: dict[str, Any]) -> Iterator[_Part]:
    key: str = entry["id"]
    values: dict[str, list[str]] = entry["values"]
    spoken: dict[str, tuple[str, ...]] = {value: (value,) for value in values}
    param = Param(key, tuple(entry["names"]), "string", "enum", False, tuple(entry["descriptions"]), spoken)
    yield _Part((param,), tuple(Ask(text, {key: value}) for value, texts in values.items() for text in texts))


def _at(mark: str, **keys: str) -> str:
    return mark.format(**{place: f"{{{key}}}" for place, key in keys.items()})


__all__ = ["invented"]
