"""The hand-written phrases of `world/builtin.toml` and `world/talk.toml`. One in seven is for the evaluation alone."""

import tomllib
from functools import cache
from typing import Any

from train_embedded_model.kinds import WORLD
from train_embedded_model.pools import held_out


@cache
def table(file: str) -> dict[str, Any]:
    """A whole file."""
    return tomllib.loads((WORLD / f"{file}.toml").read_text())


@cache
def phrases(file: str, name: str, entry: str, *, test: bool) -> tuple[str, ...]:
    """The phrases of a list for training, or those for the evaluation."""
    return split(tuple(table(file)[name][entry]), test=test)


def split(texts: tuple[Any, ...], *, test: bool) -> tuple[Any, ...]:
    """The entries for training, or those for the evaluation; all of them where one side would be empty."""
    return tuple(text for text in texts if held_out(str(text)) == test) or texts
