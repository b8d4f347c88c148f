"""pydantic-ai's toolset of an MCP server."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from flow import drive, run, stopped, target
from pydantic_ai.mcp import MCPToolset


class Toolset:
    """A toolset, driven."""

    def __init__(self, toolset: Any, seeing: list[Callable[[str], None]]) -> None:
        self._toolset, self._seeing = toolset, seeing

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(
        self, name: str, arguments: dict[str, Any], see: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        self._seeing[:] = [] if see is None else [see]
        try:
            made: dict[str, Any] = await self._toolset.direct_call_tool(name, arguments)
        except ToolError as exc:
            return {"error": str(exc)}
        return made

    async def cancel(self, running: "asyncio.Task[Any]") -> None:
        await stopped(running)

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in await self._toolset.list_resources()]

    async def read(self, uri: str) -> str:
        return str(await self._toolset.read_resource(uri))

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in await self._toolset.list_prompts()]

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[str]:
        return [str(message.content.content) for message in (await self._toolset.get_prompt(name, arguments)).messages]


async def main() -> None:
    """Connect and drive."""
    where, seeing = target(), []

    async def allow(message: str, answer: Any, params: Any, context: Any) -> dict[str, Any]:
        return {"approve": True}

    async def progress(_: float, total: float | None, message: str | None) -> None:
        for see in seeing:
            see(message or "")

    transport = where["url"] if "url" in where else StdioTransport(where["command"], where["args"], where["env"])
    toolset = MCPToolset(transport, elicitation_handler=allow, progress_handler=progress, tool_error_behavior="error")
    async with toolset:
        await drive(Toolset(toolset, seeing))


if __name__ == "__main__":
    run(main)
