"""No file and no function of the house grows beyond what can be read at once. Complexity is ruff's to hold."""

import ast
from pathlib import Path

import pytest

from tests.docs.test_architecture import ROOMS, ROOT

LINES = 350
FUNCTION_LINES = 50
FILES = sorted(path.relative_to(ROOT) for room in (*ROOMS, "tenuto") for path in (ROOT / room).glob("**/*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_is_short_and_so_are_its_functions(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert text.count("\n") <= LINES
    if "versions" in path.parts:  # a migration says in one function what it does
        return
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}
