"""Every client whose files are known here. A new one is a file beside this and a line below."""

from tenuto.runtime.terminal.mcp_clients.claude import CLAUDE
from tenuto.runtime.terminal.mcp_clients.client import Client
from tenuto.runtime.terminal.mcp_clients.codex import CODEX
from tenuto.runtime.terminal.mcp_clients.editors import CLAUDE_DESKTOP, CURSOR, VSCODE
from tenuto.runtime.terminal.mcp_clients.opencode import OPENCODE

CLIENTS: dict[str, Client] = {each.name: each for each in (CLAUDE, CLAUDE_DESKTOP, CURSOR, VSCODE, CODEX, OPENCODE)}
