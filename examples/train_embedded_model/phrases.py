"""The hand-written phrases of `world/builtin*.toml` and `world/talk*.toml`. One in seven is for evaluation alone."""

import tomllib
from functools import cache
from typing import Any

from train_embedded_model.kinds import WORLD
from train_embedded_model.pools import held_out


@cache
def table(file: str) -> dict[str, Any]:
    """All files of a name as one: lists go on, and of facts with one key so do their phrases."""
    whole: dict[str, Any] = {}
    for path in sorted(WORLD.glob(f"{file}*.toml")):
        for name, entries in tomllib.loads(path.read_text()).items():
            if isinstance(entries, list):
                whole[name] = _joined_facts(whole.get(name, []), entries)
            else:
                kept = whole.setdefault(name, {})
                for key, texts in entries.items():
                    kept[key] = [*kept.get(key, []), *texts]
    return whole


def _joined_facts(facts: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key = {fact["key"]: dict(fact) for fact in facts}
    for fact in more:
        known = by_key.setdefault(fact["key"], dict(fact))
        if known != fact:
            known |= {name: [*known[name], *fact[name]] for name in ("tells", "asks")}
    return list(by_key.values())


@cache
def phrases(file: str, name: str, entry: str, *, test: bool) -> tuple[str, ...]:
    """The phrases of a list for training, or those for the evaluation."""
    return split(tuple(table(file)[name][entry]), test=test)


def split(texts: tuple[Any, ...], *, test: bool) -> tuple[Any, ...]:
    """The entries for training, or those for the evaluation; all of them where one side would be empty."""
    return tuple(text for text in texts if held_out(str(text)) == test) or texts
