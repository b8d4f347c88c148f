"""The kinds of tools in the world, and concrete tools made of them: names, parameters and wording differ each time.

A kind in `world/*.toml` says what a tool may be called, how it may be described, and how people ask for it. One kind
in eight is for the evaluation alone: no name, parameter or phrasing of it is ever trained on.
"""

import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from train_embedded_model.pools import Pools, Value, held_out

WORLD = Path(__file__).parent / "world"
_NO_KINDS = ("builtin", "roles", "synonyms", "talk")
_LIKE_BUILTINS = "clocks_sums_memos"
_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a kind: what it may be called, and what its values are."""

    key: str
    names: tuple[str, ...]
    type: str
    pool: str
    required: bool
    descriptions: tuple[str, ...]
    spoken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of an enum: each exact value, and how people say it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A way to ask: text with places for params, and arguments that are said in other words."""

    text: str
    given: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a tool may be like."""

    id: str
    subject: str
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    asks: tuple[Ask, ...]
    results: tuple[str, ...]
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in a list of tools: a kind with its choices made. `inner`: the object that holds a param, if one does."""

    kind: Kind
    name: str
    description: str
    schema: dict[str, Any]
    names: dict[str, str]
    order: tuple[str, ...]
    inner: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        """The tool as a request of the chat API lists it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}

    def arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values by the kind's keys as the arguments of a call, in the order of the schema."""
        made: dict[str, Any] = {}
        for key in self.order:
            if key in values:
                place = made.setdefault(self.inner[key], {}) if key in self.inner else made
                place[self.names[key]] = values[key]
        return made


@cache
def kinds(*, test: bool, like_builtins: bool = False) -> tuple[Kind, ...]:
    """The kinds for training, or those for the evaluation alone. like_builtins: those that rival the built-in tools."""
    fitting = (kind for kind in all_kinds() if (kind.subject == _LIKE_BUILTINS) == like_builtins)
    return tuple(kind for kind in fitting if held_out(kind.id, 8) == test)


@cache
def all_kinds() -> tuple[Kind, ...]:
    """All kinds of all files."""
    found = []
    for path in sorted(WORLD.glob("*.toml")):
        if not path.name.startswith(_NO_KINDS):
            found += [_kind(path.stem, entry) for entry in tomllib.loads(path.read_text())["tool"]]
    return tuple(found)


def _kind(subject: str, entry: dict[str, Any]) -> Kind:
    params = tuple(
        Param(
            key,
            tuple(given["names"]),
            given["type"],
            given["value"],
            given.get("required", True),
            tuple(given.get("descriptions", ())),
            {value: tuple(said) for value, said in given.get("values", {}).items()},
        )
        for key, given in entry.get("params", {}).items()
    )
    asks = tuple(Ask(a, {}) if isinstance(a, str) else Ask(a["text"], a.get("set", {})) for a in entry["asks"])
    return Kind(
        entry["names"][0],
        subject,
        tuple(entry["names"]),
        tuple(entry["descriptions"]),
        asks,
        tuple(entry["results"]),
        params,
    )


def make_tool(pools: Pools, kind: Kind, prefix: str, taken: Sequence[str]) -> Tool:
    """Choose a name, parameters and wording. `prefix` is the server's name, or empty."""
    rng = pools.rng
    style = rng.choice(("snake", "snake", "snake", "kebab", "camel"))
    base = rng.choice(kind.names)
    if rng.random() < 0.05:
        base = pools.made_word()
    name = prefix + _styled(base, style)
    while name in taken:
        name = prefix + _styled(f"{base}_{pools.made_word()}", style)
    description = _long(rng, kind) if rng.random() < 0.1 else rng.choice(kind.descriptions)
    described = rng.random() < 0.6
    param_style = "camel" if style == "camel" and rng.random() < 0.6 else "snake"
    order = list(kind.params)
    if rng.random() < 0.25:
        rng.shuffle(order)
    # An optional parameter may be missing from the schema; one that is there may be unused.
    order = [param for param in order if param.required or rng.random() < 0.8]
    names: dict[str, str] = {}
    schemas: dict[str, dict[str, Any]] = {}
    for param in order:
        free = [each for each in param.names if each not in names.values()] or [param.key]
        chosen = pools.made_word() if rng.random() < 0.04 else rng.choice(free)
        names[param.key] = _styled(chosen, param_style)
        schemas[param.key] = _schema(pools, param, described=described)
    inner: dict[str, str] = {}
    if len(order) > 1 and rng.random() < 0.08:
        holders = ("options", "filter", "data", "params", "input", "details", "body")
        holder = rng.choice([each for each in holders if each not in names.values()])
        first = rng.randint(0, len(order) - 1)
        inner = {param.key: holder for param in order[first:]}
    schema = _object(order, names, schemas, inner)
    return Tool(kind, name, description, schema, names, tuple(p.key for p in order), inner)


def _long(rng: random.Random, kind: Kind) -> str:
    """A description of several sentences, as many real ones are: what it does in other words, and what to mind."""
    said = rng.sample(kind.descriptions, min(len(kind.descriptions), rng.choice((1, 2, 2, 3))))
    said += rng.sample(_REMARKS, rng.choice((1, 1, 2, 3)))
    return " ".join(sentence if sentence.endswith((".", "!", "?")) else f"{sentence}." for sentence in said)


_REMARKS = (
    "Use it when the user asks for this.", "Use with caution.", "Does not change anything.", "Read-only.",
    "Fails if it does not exist.", "Returns an error message if that is not possible.", "Results come as JSON.",
    "The answer is plain text.", "Handles various encodings.", "This is more efficient than doing it one by one.",
    "Only works within what the server may access.", "Needs permission.", "Prefer this over the older variant.",
    "DEPRECATED: there is a newer tool for this.", "Perfect for a quick overview.", "Supports paging by a cursor.",
    "Results are limited to 100.", "Each result has a name and a type.", "If it exists already, nothing happens.",
    "Essential for understanding what there is.", "Can be called several times.", "May take some seconds.",
    "Names are case-sensitive.", "Ask the user first if anything is unclear.", "Do not use it for anything else.",
    "Returns detailed information.", "Both simple and nested ones are supported.", "The first match wins.",
    "Values must be absolute.", "Without options it takes the defaults.",
)  # fmt: skip


def _object(
    order: Sequence[Param], names: dict[str, str], schemas: dict[str, dict[str, Any]], inner: dict[str, str]
) -> dict[str, Any]:
    outer: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for param in order:
        place = outer
        if param.key in inner:
            holder = inner[param.key]
            empty = {"type": "object", "properties": {}, "required": []}
            place = outer["properties"].setdefault(holder, empty)
            if param.required and holder not in outer["required"]:
                outer["required"].append(holder)
        place["properties"][names[param.key]] = schemas[param.key]
        if param.required:
            place["required"].append(names[param.key])
    return outer


def _schema(pools: Pools, param: Param, *, described: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.type}
    if param.pool == "enum":
        schema["enum"] = list(param.spoken)
    if param.type == "array":
        schema["items"] = {"type": "number" if param.pool == "numbers" else "string"}
    if described and param.descriptions and pools.rng.random() < 0.85:
        schema["description"] = pools.rng.choice(param.descriptions)
    return schema


def _styled(name: str, style: str) -> str:
    if style == "kebab":
        return name.replace("_", "-")
    if style == "camel":
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)
    return name


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks of a tool, and the call that it means."""

    text: str
    tool: Tool
    values: dict[str, Any]

    @property
    def call(self) -> tuple[str, dict[str, Any]]:
        """The tool's name, and the arguments."""
        return self.tool.name, self.tool.arguments(self.values)


def request(pools: Pools, tool: Tool, fixed: dict[str, Value] | None = None) -> Request:
    """A request for the tool. `fixed` gives values by the kind's keys; the others are drawn."""
    rng = pools.rng
    fixed = fixed or {}
    fitting = [
        ask
        for ask in tool.kind.asks
        if all(key in tool.names for key in (*_PLACE.findall(ask.text), *ask.given))
        and all(key in _PLACE.findall(ask.text) for key in fixed)
    ]
    if not fitting or rng.random() < 0.07:
        return _direct(pools, tool, fixed)
    ask = rng.choice(fitting)
    values: dict[str, Value] = {}
    for param in tool.kind.params:
        if f"{{{param.key}}}" in ask.text:
            values[param.key] = fixed.get(param.key) or _draw(pools, param, values)
    text = _PLACE.sub(lambda found: values[found[1]].spoken, ask.text)
    return Request(text, tool, {key: value.json for key, value in values.items()} | ask.given)


def _direct(pools: Pools, tool: Tool, fixed: dict[str, Value]) -> Request:
    """A request that names the tool and its parameters."""
    rng = pools.rng
    values: dict[str, Value] = {}
    for param in tool.kind.params:
        if param.key in tool.names and (param.required or param.key in fixed or rng.random() < 0.3):
            values[param.key] = fixed.get(param.key) or _draw(pools, param, values)
    form = rng.choice(("{n} {v}", "{n}: {v}", "{n} = {v}", "{n}={v}", "{v} as {n}", '{n} "{v}"'))
    parts = [form.format(n=tool.names[key], v=value.spoken) for key, value in values.items()]
    bare = tool.name.split("__")[-1]
    head = rng.choice(
        ("Use {t}", "Call {t}", "Run {t}", "{t}", "Please use the {t} tool", "call the tool {t}", "try {t}")
    )
    head = head.format(t=rng.choice((tool.name, bare, bare.replace("_", " "))))
    joined = rng.choice((", ", " and ")).join(parts) if len(parts) < 3 else ", ".join(parts)
    text = f"{head} with {joined}" if parts else head
    return Request(text, tool, {key: value.json for key, value in values.items()})


def _draw(pools: Pools, param: Param, others: dict[str, Value]) -> Value:
    for _ in range(20):
        if param.pool == "enum":
            exact = pools.rng.choice(tuple(param.spoken))
            drawn = Value(exact, pools.rng.choice(param.spoken[exact]))
        elif param.pool == "bool":
            yes = pools.rng.random() < 0.5
            drawn = Value(yes, "true" if yes else "false")
        else:
            drawn = pools.draw(param.pool)
        if param.type == "string" and not isinstance(drawn.json, str):
            drawn = Value(drawn.spoken, drawn.spoken)
        if drawn not in others.values():
            break
    return drawn


def result(pools: Pools, req: Request) -> str:
    """What the tool could answer."""
    spoken = {key: str(value) for key, value in req.values.items()}

    def fill(found: re.Match[str]) -> str:
        key = found[1]
        if key in spoken:
            return spoken[key]
        param = next((each for each in req.tool.kind.params if each.key == key), None)
        if param is not None:
            return str(_draw(pools, param, {}).json)
        return pools.text(key)

    return _PLACE.sub(fill, pools.rng.choice(req.tool.kind.results))
