"""The Python SDK of the first generation, whose last version is the one that most clients stand on today."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from flow import drive, run, stopped, target
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl


class Session:
    """A session of it, driven."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(
        self, name: str, arguments: dict[str, Any], see: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        async def progress(_: float, __: float | None, message: str | None) -> None:
            if see is not None:
                see(message or "")

        result = await self._session.call_tool(name, arguments, progress_callback=progress if see else None)
        return {"error": str(result.content)} if result.isError else result.structuredContent

    async def cancel(self, running: "asyncio.Task[Any]") -> None:
        # This client itself tells nobody when it stops waiting.
        params = types.CancelledNotificationParams(requestId=self._session._request_id - 1)
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self._session.send_notification(types.ClientNotification(notification))
        await stopped(running)

    async def resources(self) -> list[str]:
        return [str(resource.uri) for resource in (await self._session.list_resources()).resources]

    async def read(self, uri: str) -> str:
        return (await self._session.read_resource(AnyUrl(uri))).contents[0].text

    async def prompts(self) -> list[str]:
        return [prompt.name for prompt in (await self._session.list_prompts()).prompts]

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[str]:
        return [message.content.text for message in (await self._session.get_prompt(name, arguments)).messages]


async def allow(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Answer as a person who allows everything."""
    return types.ElicitResult(action="accept", content={"approve": True})


async def main() -> None:
    """Connect and drive."""
    where = target()
    async with AsyncExitStack() as stack:
        if "url" in where:
            read, write, _ = await stack.enter_async_context(streamablehttp_client(where["url"]))
        else:
            server = StdioServerParameters(command=where["command"], args=where["args"], env=where["env"])
            read, write = await stack.enter_async_context(stdio_client(server))
        session = await stack.enter_async_context(ClientSession(read, write, elicitation_callback=allow))
        await session.initialize()
        await drive(Session(session))


if __name__ == "__main__":
    run(main)
