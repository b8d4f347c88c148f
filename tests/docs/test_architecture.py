"""docs/architecture.md tells the truth; `python -m tests.docs.test_architecture` writes its list of modules."""

import ast
import re
import tomllib
from functools import cache
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


def prose() -> str:
    return PAGE.read_text().partition(HEADING)[0]


@cache
def names() -> frozenset[str]:
    """Every class of the rooms, and every class.method of them."""
    found: set[str] = set()
    for path in modules():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ClassDef):
                parts = (part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)))
                found |= {node.name, *(f"{node.name}.{part.name}" for part in parts)}
    return frozenset(found)


def test_every_path_on_the_page_is_there() -> None:
    told = re.findall(r"`?((?:runtime|tools|pipelines|sessions|tests|tenuto)/[\w/.]*)", prose())
    assert len(told) > 40
    assert [path for path in told if not (ROOT / path.rstrip(".")).exists()] == []


def test_every_class_and_method_on_the_page_is_there() -> None:
    told = set(re.findall(r"`([A-Z]\w+)`", prose())) | set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b|\bStore\.\w+", prose()))
    assert {"Dialect", "Draft", "Submit", "EnginePort", "Store.commit"} <= told
    assert told - names() == set()


def test_the_layers_on_the_page_are_those_that_make_check_enforces() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (inside,) = (one["layers"] for one in contracts if one["name"] == "Inside runtime, imports point down")
    (found,) = re.findall(r"^runtime/ +(.*)$", prose(), re.MULTILINE)
    told = found.split(" > ")
    assert told == inside[: len(told)]
    (rooms,) = (one["layers"] for one in contracts if one["name"] == "Imports point down")
    above = ["__main__", "runtime", "tools | pipelines", "sessions", "access_errors"]
    assert rooms == [*above, "errors | json_bounds | paths | threads"]


def test_the_scheduler_is_pure_as_the_page_says() -> None:
    tree = ast.parse((ROOT / "runtime" / "engine" / "scheduler.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"collections", "collections.abc", "dataclasses", "typing", "tenuto.sessions.priority"}


def main() -> None:
    before, heading, _ = PAGE.read_text().partition(HEADING)
    PAGE.write_text(f"{before}{heading}\n{listing()}")


if __name__ == "__main__":
    main()
