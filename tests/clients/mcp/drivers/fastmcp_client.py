"""fastmcp's client, of the second and of the fourth generation."""

import asyncio
from collections.abc import Callable
from typing import Any

import fastmcp
from fastmcp.client.transports import StdioTransport
from flow import drive, run, stopped, target

SECOND = fastmcp.__version__.startswith("2.")


class Connected:
    """A connected client of it, driven."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(
        self, name: str, arguments: dict[str, Any], see: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        async def progress(_: float, __: float | None, message: str | None) -> None:
            if see is not None:
                see(message or "")

        result = await self._client.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)
        return {"error": str(result.content)} if result.is_error else result.structured_content

    async def cancel(self, running: "asyncio.Task[Any]") -> None:
        if SECOND:
            await self._client.cancel(self._client.session._request_id - 1)
        await stopped(running)

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in await self._client.list_resources()]

    async def read(self, uri: str) -> str:
        return (await self._client.read_resource(uri))[0].text

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in await self._client.list_prompts()]

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[str]:
        return [message.content.text for message in (await self._client.get_prompt(name, arguments)).messages]


async def allow(message: str, answer: Any, params: Any, context: Any) -> dict[str, Any]:
    """Answer as a person who allows everything."""
    return {"approve": True}


async def main() -> None:
    """Connect and drive."""
    where = target()
    transport = where["url"] if "url" in where else StdioTransport(where["command"], where["args"], where["env"])
    era = {} if SECOND else {"mode": where["era"]}
    async with fastmcp.Client(transport, elicitation_handler=allow, **era) as client:
        await drive(Connected(client))


if __name__ == "__main__":
    run(main)
