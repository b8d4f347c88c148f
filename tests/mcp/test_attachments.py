"""What tools answer besides text reaches MCP clients as it was."""

import json
import sys
from pathlib import Path

import mcp.types as t
import pytest

from tests.conftest import Start
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected

pytestmark = pytest.mark.slow

CARRYING = Path(__file__).parent / "carrying.py"
CARRIED = """look
[image: image/png, 3 bytes]
[audio: audio/wav, 3 bytes]
[resource: file:///a.bin, application/zip, 2 bytes]
[resource: https://example.org/b, text/plain]"""


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_pictures_sounds_files_and_links_stand_beside_the_text(
    transport: str, mode: str, tmp_path: Path, start: Start
) -> None:
    config = {"mcpServers": {"far": {"command": sys.executable, "args": [str(CARRYING)], "permission": "auto"}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config))
    server = start("--mcp-config", str(tmp_path / "mcp.json"))
    async with connected(server, transport, mode) as client:
        result = await client.call_tool("far__carry", {})
    file = t.BlobResourceContents(uri="file:///a.bin", mime_type="application/zip", blob="UEs=")
    assert result.content == [
        t.TextContent(type="text", text=CARRIED),
        t.ImageContent(type="image", data="AAAA", mime_type="image/png"),
        t.AudioContent(type="audio", data="BBBB", mime_type="audio/wav"),
        t.EmbeddedResource(type="resource", resource=file),
        t.ResourceLink(
            type="resource_link",
            name="https://example.org/b",
            uri="https://example.org/b",
            mime_type="text/plain",
        ),
    ]
