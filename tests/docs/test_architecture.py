"""docs/architecture.md tells of every module in its own words; `python -m tests.docs.test_architecture` writes it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HEADING = "## Every module, in a line\n"
ROOMS = ("runtime", "tools", "pipelines", "sessions")


def modules() -> list[Path]:
    found = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"), key=lambda p: (p.parent, p.name))]
    return [path.relative_to(ROOT) for path in found if path.name != "__init__.py" and "versions" not in path.parts]


def first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text()))
    assert docstring, f"{path} does not say what it is"
    return docstring.split("\n\n")[0].replace("\n", " ")


def listing() -> str:
    lines: list[str] = []
    folder = None
    for path in modules():
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"**{folder}/**", ""]
        lines.append(f"- `{path.name}`: {first_sentence(path)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def test_the_architecture_page_lists_every_module_in_its_own_words() -> None:
    _, _, listed = PAGE.read_text().partition(HEADING)
    assert listed.strip() == listing().strip(), "run: python -m tests.docs.test_architecture"


def main() -> None:
    before, heading, _ = PAGE.read_text().partition(HEADING)
    PAGE.write_text(f"{before}{heading}\n{listing()}")


if __name__ == "__main__":
    main()
