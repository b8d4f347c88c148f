"""What the doctor finds: facts, and problems with what to do about them. Pure, but for printing."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from tenuto.runtime.terminal.words import harmless


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and what to do. `broken`: something does not work; otherwise it could be better."""

    what: str
    remedy: str
    broken: bool = True


@dataclass(slots=True)
class Section:
    """One thing that was looked at. `lines` are quoted as they came, as of a log."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def wrong(self, what: str, remedy: str, *, broken: bool = True) -> None:
        """Add a problem."""
        self.problems.append(Problem(what, remedy, broken))

    @property
    def broken(self) -> bool:
        """Whether something in it does not work."""
        return any(problem.broken for problem in self.problems)


def print_section(section: Section) -> None:
    """For people."""
    click.secho(section.title, bold=True)
    for name, value in section.facts.items():
        click.echo(f"  {name}: {harmless(_shown(value))}")
    for line in section.lines:
        click.secho(f"  | {harmless(line)}", dim=True)
    for problem in section.problems:
        mark, colour = ("✗", "red") if problem.broken else ("!", "yellow")
        click.secho(f"  {mark} {harmless(problem.what)}", fg=colour)
        click.echo(f"    → {harmless(problem.remedy)}")


def print_verdict(sections: Sequence[Section]) -> None:
    """The last line."""
    broken = [section.title for section in sections if section.broken]
    if broken:
        click.secho(f"broken: {', '.join(broken)}", fg="red", bold=True)
    else:
        click.secho("nothing is broken", fg="green", bold=True)


def as_json(sections: Sequence[Section]) -> dict[str, Any]:
    """For programs."""
    return {
        "ok": not any(section.broken for section in sections),
        "sections": [asdict(section) for section in sections],
    }


def bytes_text(count: float) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
