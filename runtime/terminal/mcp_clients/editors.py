"""Claude Desktop, Cursor and VS Code: a file each, which they read when they start or when it changes."""

from functools import partial

from tenuto.runtime.terminal.mcp_clients import mcp_servers
from tenuto.runtime.terminal.mcp_clients.client import Client, under
from tenuto.runtime.terminal.mcp_clients.reading import literal

CLAUDE_DESKTOP = Client(
    name="claude-desktop",
    title="Claude Desktop",
    user=lambda place: place.application("Claude") / "claude_desktop_config.json",
    project=None,
    entry=mcp_servers.program_alone,
    read=mcp_servers.read,
    way=under("mcpServers"),
    resolve=literal,
    use="Quit Claude Desktop and start it again to use it.",
)

CURSOR = Client(
    name="cursor",
    title="Cursor",
    user=lambda place: place.home / ".cursor" / "mcp.json",
    project=".cursor/mcp.json",
    entry=partial(mcp_servers.entry, reference="${env:%s}"),
    read=mcp_servers.read,
    way=under("mcpServers"),
    use="Switch it on in Cursor's settings, under MCP, to use it.",
)

VSCODE = Client(
    name="vscode",
    title="VS Code",
    user=lambda place: place.application("Code") / "User" / "mcp.json",
    project=".vscode/mcp.json",
    entry=partial(mcp_servers.entry, reference="${env:%s}"),
    read=mcp_servers.read,
    way=under("servers"),
    use="Start it from the list of MCP servers in VS Code (`MCP: List Servers`) to use it.",
)
