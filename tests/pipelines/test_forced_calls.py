"""Whatever the format, a call that a model is forced to make is valid by its tool: random weights, temperature 1."""

from pathlib import Path

import pytest

from tests.pipelines.held import force_calls
from tests.pipelines.schemas import ARGUMENTS, FREE, some
from tests.pipelines.tiny_chat import CALLING, load_tiny

SCHEMAS = 10


@pytest.mark.parametrize("name", CALLING)
async def test_every_forced_call_is_valid_by_its_tool(name: str, tmp_path: Path) -> None:
    await force_calls(load_tiny(tmp_path / "tiny.gguf", name), [*FREE, *some(ARGUMENTS, SCHEMAS)])
