"""Eight MCP servers with sixty tools in one process, over HTTP, each at a path of its own: python -m tests.e2e.crowd"""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

DOES = ("list", "find", "create", "update", "remove", "rename", "count")
THINGS = ("mailbox", "folder", "ticket", "song", "invoice", "contact", "calendar")
WEATHER = "weather"
SERVERS = (*THINGS, WEATHER)
FORECAST = "18 degrees and sunny"


def tools(server: str) -> dict[str, types.Tool]:
    if server == WEATHER:
        return {"get_weather": _tool("get_weather", "Get the weather of a city", "city")} | {
            name: _tool(name, about, "city")
            for name, about in (
                ("list_stations", "List the stations that measure in a city"),
                ("air_quality", "How clean the air of a city is"),
                ("sun_times", "When the sun rises and sets in a city"),
                ("moon_phase", "How much of the moon is seen from a city"),
                ("tide_times", "When the sea is high in a city that lies at it"),
                ("snow_depth", "How deep the snow is around a city"),
                ("river_level", "How high the rivers in a city are"),
                ("pollen", "Which plants are in bloom around a city"),
                ("lightning", "Where lightning has struck near a city"),
                ("webcams", "List the cameras that show a city"),
            )
        }
    named = {f"{does}_{server}": f"{does.capitalize()} a {server} by its name, with all its fields" for does in DOES}
    return {name: _tool(name, about, "name") for name, about in named.items()}


def _tool(name: str, about: str, parameter: str) -> types.Tool:
    text = {"type": "string", "description": f"The {parameter} that is meant, as the user writes it"}
    schema: dict[str, Any] = {"type": "object", "properties": {parameter: text}, "required": [parameter]}
    return types.Tool(name=name, description=about, input_schema=schema)


def served(name: str) -> Server[Any]:
    own = tools(name)

    async def listed(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*own.values()])

    async def called(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = FORECAST if params.name == "get_weather" else f"{params.name}: {json.dumps(params.arguments)}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server(name, on_list_tools=listed, on_call_tool=called)


def main() -> None:
    managers = {name: StreamableHTTPSessionManager(served(name)) for name in SERVERS}

    @contextlib.asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    routes = [Route(f"/{name}", StreamableHTTPASGIApp(manager)) for name, manager in managers.items()]
    door = socket.create_server(("127.0.0.1", 0))
    print(door.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes, lifespan=running), log_level="error")).run(sockets=[door])


if __name__ == "__main__":
    main()
