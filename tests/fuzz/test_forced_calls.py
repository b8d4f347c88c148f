"""The same as tests/pipelines/test_forced_calls.py with many more schemas, other ones in each run."""

import os
import random
from pathlib import Path

import pytest

from tests.pipelines.held import force_calls
from tests.pipelines.schemas import ARGUMENTS, FREE, some
from tests.pipelines.tiny_chat import CALLING, load_tiny

SCHEMAS = 200


@pytest.mark.skipif("FUZZ_SECONDS" not in os.environ, reason="`make fuzz` plays it: it takes minutes")
@pytest.mark.parametrize("name", CALLING)
async def test_every_forced_call_is_valid_by_its_tool(name: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"the schemas of seed {seed}")
    await force_calls(load_tiny(tmp_path / "tiny.gguf", name), [*FREE, *some(ARGUMENTS, SCHEMAS, seed)])
