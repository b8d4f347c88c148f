"""Which of llama-server's own tests are held here, as docs/llama-server.md says it."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "llama-server.md"
PASSES, FAILS, NOT_RUN = "passes", "fails", "not run"
_ROW = re.compile(r"^\| `(\w+)`(?: ([\d, -]+))? \| (passes|fails|not run) \| (.*?) ?\|$")


@dataclass(frozen=True, order=True)
class Name:
    """A test of theirs: its module and function, and which of the function's sets of parameters it is, from 1."""

    module: str
    function: str
    set: int | None = None

    def __str__(self) -> str:
        return f"{self.module}::{self.function}" + ("" if self.set is None else f" {self.set}")


@dataclass(frozen=True)
class Row:
    """What is expected of some tests, and why, where they do not pass."""

    names: tuple[Name, ...]
    outcome: str
    reason: str


@cache
def rows() -> tuple[Row, ...]:
    """All rows of the page's tables."""
    found: list[Row] = []
    module = ""
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"^### (test_\w+\.py)$", line):
            module = heading[1]
        elif line.startswith("| `test_"):
            row = _ROW.match(line)
            assert row, line
            function, sets, outcome, reason = row.groups()
            names = tuple(Name(module, function, one) for one in _numbers(sets)) if sets else (Name(module, function),)
            found.append(Row(names, outcome, reason))
    return tuple(found)


@cache
def expected() -> dict[Name, str]:
    """The outcome of each test."""
    told = [(name, row.outcome) for row in rows() for name in row.names]
    assert len(dict(told)) == len(told), "a test stands in two rows"
    return dict(told)


def modules() -> list[str]:
    """Their modules that the page has a table of."""
    return sorted({name.module for name in expected()})


def _numbers(sets: str) -> list[int]:
    """`1-3, 5` are 1, 2, 3 and 5."""
    numbers: list[int] = []
    for part in sets.split(","):
        first, _, last = part.strip().partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
