"""A small MCP server with one tool that is not read-only."""

from mcp.server import MCPServer

server = MCPServer("pad")


@server.tool()
def write(text: str) -> str:
    """Write down a text."""
    return f"written: {text}"


if __name__ == "__main__":
    server.run("stdio")
