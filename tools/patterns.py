"""Settings by a tool's exact name or by a glob (`read_*`), as files list them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TypeVar

Setting = TypeVar("Setting")


def matching(patterns: Iterable[tuple[str, Setting]], name: str) -> list[Setting]:
    """The settings that hold for the name: those under the exact name, else those of all globs that match it."""
    listed = list(patterns)
    exact = [setting for pattern, setting in listed if pattern == name]
    return exact or [setting for pattern, setting in listed if fnmatchcase(name, pattern)]
