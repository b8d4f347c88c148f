"""The MCP servers that the pages configure are configured as the server reads them."""

import json
import re
from pathlib import Path

import pytest

from tenuto.tools.mcp_config import VARIABLE, parse_mcp_config

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    if '"mcpServers"' in block
]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.name}-{n}" for n, (page, _) in enumerate(BLOCKS)])
def test_a_configuration_of_the_docs_can_be_read(page: Path, block: str) -> None:
    variables = {found[1]: "a-value" for found in VARIABLE.finditer(block)}
    configs = parse_mcp_config(block, str(page), {**variables, "HOME": "/home/ada"})
    assert {config.name for config in configs} == set(json.loads(block)["mcpServers"])


def test_both_pages_on_mcp_have_one() -> None:
    assert {"mcp.md", "mcp-servers.md", "README.md"} <= {page.name for page, _ in BLOCKS}
