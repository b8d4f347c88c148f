"""A kind of tool with some of its words exchanged for others, so that it has to be read.

A small model would rather remember which words belong to which tool. Where the same request means another tool each
time, only finding the words again in the list helps: that is what it needs for a tool that it has never seen.
"""

import re
from dataclasses import replace
from functools import cache

from train_embedded_model.kinds import Ask, Kind, Param, all_kinds
from train_embedded_model.pools import Pools

_PLACES = re.compile(r"(\{\w+\})")
_WORDS = re.compile(r"[a-z]{3,}")
_ENDINGS = ("ing", "ed", "s", "")
_COMMON = frozenset(
    _WORDS.findall("""
    the and for are was has have had not can could would should will may any all each its this that these those with
    from into onto over out off about than then them they you your our one two how what when where which who why does
    did get set give take make use used put let see want need please tell show just now new old given value optional
    whether only also more most many much some there here per via etc been being something someone thing
""")
)


def reworded(pools: Pools, kind: Kind) -> Kind:
    """The kind with one to five of the words that its requests and its description share exchanged, everywhere."""
    shared, known = _words_of_kinds()[kind.id]
    others: dict[str, str] = {}
    for word in pools.rng.sample(shared, min(len(shared), pools.rng.choice((1, 2, 3, 4, 5)))):
        other = pools.made_word() if pools.rng.random() < 0.3 else pools.pick(pools.rng.choice(("noun", "word")))
        new = known.isdisjoint(other + ending for ending in _ENDINGS)
        if len(other) > 2 and other.isalpha() and new and other not in others.values():
            others[word] = other
    if not others:
        return kind
    words = "|".join(sorted(others, key=len, reverse=True))
    found = re.compile(rf"(?<![A-Za-z])({words})(?=(?:{'|'.join(_ENDINGS)})(?![a-z]))", re.IGNORECASE)

    def exchanged(match: re.Match[str]) -> str:
        other = others[match[1].lower()]
        return other.capitalize() if match[1][0].isupper() else other

    def text(given: str) -> str:
        return "".join(part if part.startswith("{") else found.sub(exchanged, part) for part in _PLACES.split(given))

    def texts(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(text, given))

    def param(given: Param) -> Param:
        return replace(given, names=texts(given.names), descriptions=texts(given.descriptions))

    return replace(
        kind,
        names=texts(kind.names),
        descriptions=texts(kind.descriptions),
        asks=tuple(Ask(text(ask.text), ask.given) for ask in kind.asks),
        params=tuple(map(param, kind.params)),
    )


@cache
def _words_of_kinds() -> dict[str, tuple[tuple[str, ...], frozenset[str]]]:
    """Of each kind: the words that stand both in a request for it and in what a list says of it, and all its words."""
    found: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}
    for kind in all_kinds():
        listed = [*kind.names, *kind.descriptions]
        for param in kind.params:
            listed += [*param.names, *param.descriptions]
        said, asked = _words(listed), _words([ask.text for ask in kind.asks])
        found[kind.id] = tuple(sorted(_stems(said) & _stems(asked))), said | asked
    return found


def _words(texts: list[str]) -> frozenset[str]:
    return frozenset(_WORDS.findall(_PLACES.sub(" ", " ".join(texts)).lower()))


def _stems(words: frozenset[str]) -> set[str]:
    """Without endings, and without words that say little."""
    stems: set[str] = set()
    for word in words:
        ending = next(each for each in _ENDINGS if word.endswith(each))
        stem = word.removesuffix(ending) if len(word) - len(ending) >= 3 else word
        if word not in _COMMON and stem not in _COMMON:
            stems.add(stem)
    return stems
