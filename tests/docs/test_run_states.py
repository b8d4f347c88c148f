"""docs/run-states.md is drawn from the table of a run's states; `python -m tests.docs.test_run_states` writes it."""

from pathlib import Path

from tenuto.runtime.loop.run_states import TABLE
from tenuto.sessions.records import RunStatus

PAGE = Path(__file__).parents[2] / "docs" / "run-states.md"
BEGIN, END = "```mermaid\n", "```\n"
HEAD = "|---|---|---|---|---|---|\n"


def diagram() -> str:
    """The table as a Mermaid state diagram, one line for each row."""
    lines = ["stateDiagram-v2", f"    [*] --> {RunStatus.RUNNING}: begin"]
    lines += [f"    {before} --> {row.to}: {happening}" for (before, happening), row in TABLE.items()]
    lines += [f"    {status} --> [*]" for status in RunStatus if not status.is_open]
    return "\n".join(lines) + "\n"


def rows() -> str:
    """The table with the fields that each row writes."""
    lines = []
    for (before, happening), row in TABLE.items():
        fields = (", ".join(f"`{name}`" for name in sorted(each)) for each in (row.sets, row.may_set, row.clears))
        lines.append(f"| {before} | {happening} | {row.to} | {' | '.join(fields)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page as the table wants it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{diagram()}{END}{after.partition(HEAD)[0]}{HEAD}{rows()}"


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == written(), "run: python -m tests.docs.test_run_states"


if __name__ == "__main__":
    PAGE.write_text(written())
