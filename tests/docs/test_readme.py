"""What README tells a newcomer to type works, and gives what it shows."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.patience import HANGS_S

README = (Path(__file__).parents[2] / "README.md").read_text()
ROOT = Path(__file__).parents[2]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def anchors(page: str) -> set[str]:
    """What a page's headings are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow
def test_the_curl_of_the_readme_answers_as_shown(start: Start, embedded_model: str) -> None:
    server = start(model=embedded_model)
    (command,) = [block for block in blocks("sh") if block.startswith("curl")]
    command = command.replace("http://127.0.0.1:8420", server.url).replace("curl ", "curl -sS ")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=HANGS_S, check=True)
    answer = json.loads(done.stdout)
    shown = json.loads(blocks("json")[0])
    assert answer["choices"][0]["message"]["content"] == shown["choices"][0]["message"]["content"]
    call, shown_call = answer["agentic_tool_calls"][0], shown["agentic_tool_calls"][0]
    assert {key: call[key] for key in shown_call} == shown_call
    for usage, shown_usage in zip(answer["usage"]["tenuto"]["rounds"], shown["usage"]["tenuto"]["rounds"], strict=True):
        assert {key: usage[key] for key in shown_usage} == shown_usage


def test_every_make_target_of_the_readme_is_there() -> None:
    targets = set(re.findall(r"make ([a-z-]+)", README))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= made


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        page, _, heading = target.partition("#")
        assert (ROOT / page).exists(), target
        assert not heading or heading in anchors((ROOT / page).read_text()), target


def test_the_mcp_entry_of_the_readme_is_one_that_clients_read() -> None:
    entry = json.loads(blocks("json")[1])["mcpServers"]["tenuto"]
    assert entry["args"] == ["mcp"]
