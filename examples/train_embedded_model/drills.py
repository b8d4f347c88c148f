"""Drills: copying and choosing, which everything else is made of, and one built-in server, with nothing else about."""

import random
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from train_embedded_model.builtins import SPECS, Builtins
from train_embedded_model.conversations import NO_TOOL, Call, Conversation, Message
from train_embedded_model.kinds import WORLD
from train_embedded_model.pools import Pools

_COPIED = (
    "word", "noun", "city", "person", "email", "path", "file", "date", "time", "id", "code", "phrase", "sentence",
    "integer", "number", "title", "url", "hash",
)  # fmt: skip
_SMALL = (
    "a", "all", "an", "any", "at", "by", "can", "for", "from", "get", "i", "in", "it", "me", "my", "of", "on", "or",
    "please", "some", "that", "the", "this", "to", "up", "want", "with", "you",
)  # fmt: skip


def copying(rng: random.Random) -> Conversation:
    """Texts said again, and values found by their names."""
    pools = Pools(rng, test=False)
    messages: list[Message] = []
    for _ in range(rng.choice((2, 3, 4, 5))):
        if rng.random() < 0.5:
            text = " ".join(pools.text(rng.choice(_COPIED)) for _ in range(rng.choice((1, 2, 3))))
            asked, answer = rng.choice(("Say: {}", "Repeat {}", "echo {}", "repeat: {}")).format(text), text
        else:
            names = list(dict.fromkeys(_word(pools) for _ in range(rng.choice((2, 3, 4, 5)))))
            values = {name: pools.text(rng.choice(_COPIED)) for name in names}
            form = rng.choice(("{} is {}", "{}: {}", "{} = {}", '"{}": "{}"'))
            listed = ", ".join(form.format(name, value) for name, value in values.items())
            name = rng.choice(names)
            asked, answer = f"{listed}. {rng.choice(('What is', 'Tell me', ''))} {name}?", values[name]
        messages += [Message("user", asked), Message("assistant", answer, ability="drill")]
    return Conversation("", (), tuple(messages))


def choosing(rng: random.Random, most_tools: int = 12) -> Conversation:
    """Tools described in any words, asked for by some of these or by others that mean the same.

    Only who finds the words again can choose. Some requests have words of no tool, and some those of two.
    """
    pools = Pools(rng, test=False)
    terms = _terms(pools, synonyms=rng.choice((0.0, 0.3, 0.7)))
    tools: list[_Tool] = []
    label = _as_name(next(terms))
    prefix = rng.choice(("", "", f"{label}__", f"{label}__{label}_"))
    for _ in range(rng.choice([count for count in (2, 3, 4, 5, 6, 8, 10, 12) if count <= most_tools])):
        described = [next(terms) for _ in range(rng.choice((1, 2, 3, 4, 5, 6)))]
        named = described if rng.random() < 0.3 else [next(terms), next(terms)]
        chosen = rng.sample(named, rng.choice((1, 2)) if len(named) > 1 else 1)
        name = prefix + "_".join(map(_as_name, chosen))
        params = [next(terms) for _ in range(rng.choices((0, 1, 2, 3), (35, 35, 20, 10))[0])]
        tools.append(_Tool(rng, name, described, params))
    messages: list[Message] = []
    for _ in range(rng.choice((3, 4, 5, 6, 8))):
        requests = [tool.request(pools) for tool in rng.sample(tools, rng.choices((0, 1, 2), (12, 70, 18))[0])]
        texts = [text for text, _ in requests] or [_among(rng, [next(terms).asked])]
        said = rng.choice((" and ", ", ", ". Then ", ", then ", " and also ")).join(texts)
        messages.append(Message("user", said[:1].upper() + said[1:] if rng.random() < 0.5 else said))
        calls = tuple(call for _, call in requests)
        messages.append(Message("assistant", "" if calls else NO_TOOL, calls, ability="drill"))
    return Conversation("", tuple(tool.spec for tool in tools), tuple(messages))


def practising(rng: random.Random) -> Conversation:
    """Many requests to one built-in server, mostly sums: what to write into a call, with hardly a choice before it."""
    pools = Pools(rng, test=False)
    builtins = Builtins(pools)
    server = rng.choices(("calculator", "clock", "notes"), (70, 15, 15))[0]
    names = [name for name in SPECS if name.startswith(f"{server}__")]
    messages: list[Message] = []
    for _ in range(rng.choice((6, 8, 10, 12))):
        task = builtins.any_of(set(names))()
        messages += [Message("user", task.text), Message("assistant", calls=(task.call,), ability="drill")]
    return Conversation("", tuple(SPECS[name] for name in names), tuple(messages))


class _Term(NamedTuple):
    """A word as a list has it and as a request says it: the same, or one that is used for it."""

    listed: str
    asked: str


def _terms(pools: Pools, synonyms: float) -> Iterator[_Term]:
    """Terms none of which says what another one does, as many as a drill can need."""
    rng = pools.rng
    groups = iter(rng.sample(_synonyms(), len(_synonyms())))
    seen = {*_SMALL, *(word for group in _synonyms() for word in group)} if synonyms else set(_SMALL)
    while True:
        if rng.random() < synonyms and (group := next(groups, None)):
            yield _Term(*rng.sample(group, 2))
        elif (word := _word(pools)) not in seen:
            seen.add(word)
            yield _Term(word, word)


@cache
def _synonyms() -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, tomllib.loads((WORLD / "synonyms.toml").read_text())["groups"]))


class _Tool:
    """A tool of any words, with up to three parameters."""

    def __init__(self, rng: random.Random, name: str, described: list[_Term], params: list[_Term]) -> None:
        self._name, self._described, self._params = name, described, params
        self._description = _among(rng, [term.listed for term in described])

    @property
    def spec(self) -> dict[str, Any]:
        """As a request lists it."""
        properties = {_as_name(param): {"type": "string"} for param in self._params}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return {
            "type": "function",
            "function": {"name": self._name, "description": self._description, "parameters": schema},
        }

    def request(self, pools: Pools) -> tuple[str, Call]:
        """Some of its words, and the call that they mean."""
        rng = pools.rng
        most = min(3, len(self._described))
        text = _among(rng, [term.asked for term in rng.sample(self._described, rng.randint(1, most))])
        values = {param: pools.text(rng.choice(_COPIED)) for param in self._params}
        call = (self._name, {_as_name(param): value for param, value in values.items()})
        if not values:
            return text, call
        forms = [
            "{param} {value}",
            "{param}: {value}",
            "{param} = {value}",
            "{value} as {param}",
            "the {param} is {value}",
        ]
        # What a single one is for goes without saying.
        form = rng.choice(forms + ["{value}"] * 5 if len(values) == 1 else forms)
        given = [form.format(param=param.asked, value=value) for param, value in values.items()]
        rng.shuffle(given)
        told = rng.choice((", ", " and ", "; ")).join(given)
        return rng.choice((f"{text} {told}", f"{text}: {told}", f"{told} - {text}")), call


def _word(pools: Pools) -> str:
    return pools.pick(pools.rng.choice(("word", "noun")))


def _as_name(term: _Term) -> str:
    return "".join(character if character.isalnum() else "_" for character in term.listed)


def _among(rng: random.Random, words: list[str]) -> str:
    """The words with small ones about them."""
    text = " ".join(f"{rng.choice(_SMALL)} {word}" if rng.random() < 0.4 else word for word in words)
    return text[:1].upper() + text[1:] if rng.random() < 0.5 else text


__all__ = ["choosing", "copying", "practising"]
