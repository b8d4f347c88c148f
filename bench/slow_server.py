"""An MCP server with one tool that takes as long as it is told to: what agents in bench/agent_pauses.py call.

Its schema is closed and bounds what is said, so that every model, also one with random weights, makes a call of it.
"""

import sys
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

NAME = "evaluate"
DESCRIPTION = "Evaluate an arithmetic expression."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"expression": {"type": "string", "maxLength": 16}},
    "required": ["expression"],
    "additionalProperties": False,
}


async def list_tools(_context: Any, _parameters: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name=NAME, description=DESCRIPTION, input_schema=SCHEMA)])


async def call_tool(_context: Any, parameters: CallToolRequestParams) -> CallToolResult:
    await anyio.sleep(float(sys.argv[1]))
    parts = (parameters.arguments or {})["expression"].split("+")
    told = str(sum(int(part) for part in parts if part.strip().isascii() and part.strip().isdigit()))
    return CallToolResult(content=[TextContent(text=told)])


async def main() -> None:
    server: Server[Any] = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
