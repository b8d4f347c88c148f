"""Text for a terminal: what others wrote made harmless, long things shortened, tables. No I/O but tables."""

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

WIDE = 400
"""Columns of a table that no terminal shows: nothing is cut there."""

# All control characters but line feed and tab. A model or a tool must not drive the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Text that only shows: no escape sequence, no carriage return, nothing that turns the line around."""
    return _CONTROL.sub(lambda found: "" if found[0] == "\r" else "\ufffd", text)


def shortened(text: str, most: int) -> str:
    """One line of at most `most` characters, ending in … where something is left out."""
    line = " ".join(harmless(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def arguments_of(text: str) -> str:
    """A call's JSON arguments as people read them: `a=1, b='x'`; as they are where they are no object."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    return ", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in value.items())


def print_json(value: Any) -> None:
    """For programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on stdout, as wide as the terminal; whole where stdout is none."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(str(cell))) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, soft_wrap=False).print(table)
