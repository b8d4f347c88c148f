"""docs/sequence-states.md is drawn from the table of states; `python -m tests.docs.test_sequence_states` writes it."""

from pathlib import Path

from tenuto.runtime.engine.messages import State
from tenuto.runtime.engine.sequence import TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "sequence-states.md"
BEGIN, END = "```mermaid\n", "```\n"


def diagram() -> str:
    """The table as a Mermaid state diagram, one line for each row. https://mermaid.js.org/syntax/stateDiagram.html"""
    lines = ["stateDiagram-v2", f"    [*] --> {State.PAUSED}"]
    lines += [f"    {before} --> {after}: {happening}" for (before, happening), after in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in State if not any(state is before for before, _ in TRANSITIONS)]
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    drawn, _, after = rest.partition(END)
    return before, drawn, after


def test_the_diagram_shows_the_table() -> None:
    assert parts()[1] == diagram(), "run: python -m tests.docs.test_sequence_states"


def main() -> None:
    before, _, after = parts()
    PAGE.write_text(f"{before}{BEGIN}{diagram()}{END}{after}")


if __name__ == "__main__":
    main()
