"""langchain-mcp-adapters: tools as LangChain has them, one connection for all of them."""

from collections.abc import Callable
from typing import Any

from flow import drive, run, target
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.prompts import load_mcp_prompt
from langchain_mcp_adapters.resources import load_mcp_resources
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, types
from python_sdk import Session


class Loaded(Session):
    """A session of the Python SDK, as these adapters have it, with its tools as LangChain's."""

    def __init__(self, session: ClientSession, callbacks: Callbacks, seeing: list[Callable[[str], None]]) -> None:
        super().__init__(session)
        self._callbacks, self._seeing = callbacks, seeing

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._loaded()]

    async def call(
        self, name: str, arguments: dict[str, Any], see: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        (tool,) = [tool for tool in await self._loaded() if tool.name == name]
        self._seeing[:] = [] if see is None else [see]
        made = await tool.ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
        return {"error": str(made.content)} if made.status == "error" else made.artifact["structured_content"]

    async def read(self, uri: str) -> str:
        (blob,) = await load_mcp_resources(self._session, uris=[uri])
        return str(blob.as_string())

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[str]:
        return [str(message.content) for message in await load_mcp_prompt(self._session, name, arguments=arguments)]

    async def _loaded(self) -> list[Any]:
        return await load_mcp_tools(self._session, callbacks=self._callbacks)


async def main() -> None:
    """Connect and drive."""
    where, seeing = target(), []

    async def allow(_: Any, params: Any, context: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": True})

    async def progress(_: float, total: float | None, message: str | None, context: Any) -> None:
        for see in seeing:
            see(message or "")

    callbacks = Callbacks(on_elicitation=allow, on_progress=progress)
    if "url" in where:
        connection = {"transport": "streamable_http", "url": where["url"]}
    else:
        connection = {"transport": "stdio", **{name: where[name] for name in ("command", "args", "env")}}
    client = MultiServerMCPClient({"tenuto": connection}, callbacks=callbacks)
    async with client.session("tenuto") as session:
        await drive(Loaded(session, callbacks, seeing))


if __name__ == "__main__":
    run(main)
