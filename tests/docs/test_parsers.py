"""The reasons that docs/parsers.md gives for differences to llama.cpp's parser are those that the answers name."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_explains_the_differences_that_answers_name() -> None:
    explained = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/parsers.md").read_text(), re.MULTILINE)
    answers = [
        answer for file in (ROOT / "bench/formats/answers").glob("*.json") for answer in json.loads(file.read_text())
    ]
    assert sorted({answer["differs"] for answer in answers if "differs" in answer}) == sorted(explained)
