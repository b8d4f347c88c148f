"""docs/models-life.md is drawn from a table of states; `python -m tests.docs.test_models_life` writes it."""

from pathlib import Path

from tenuto.runtime.loop.life.states import TABLE, ModelState

PAGE = Path(__file__).parents[2] / "docs" / "models-life.md"
BEGIN, END = "```mermaid\n", "```\n"


def diagram() -> str:
    """The table as a Mermaid state diagram, one line for each row."""
    lines = ["stateDiagram-v2", f"    [*] --> {ModelState.AVAILABLE}"]
    lines += [f"    {before} --> {after}: {happening}" for (before, happening), after in TABLE.items()]
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page as the table wants it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{diagram()}{END}{after}"


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == written(), "run: python -m tests.docs.test_models_life"


if __name__ == "__main__":
    PAGE.write_text(written())
