"""An MCP server whose resources change when it is told to, in both eras: on stdio, or with `http` over streamable HTTP,
whose port it prints. What is read tells it what to do:

`ctl:change:URI` tells those who have subscribed to it, or to what it is below. `ctl:flood:NUMBER:URI` does so many
times, with `*` in the URI as the number. `ctl:await:NUMBER:URI` answers once so many are subscribed. `ctl:made` tells
how often anybody has subscribed to what. `ctl:end` ends the process. With `deaf` nobody can subscribe, and with `mute`
it never answers who does, but for `memo://heard`. `memo://none` is refused.
"""

import contextlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import mcp.types as t
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from starlette.applications import Starlette
from starlette.routing import Route

Tell = Callable[[str], Awaitable[None]]
subscribed: dict[object, tuple[str, Tell]] = {}
made: Counter[str] = Counter()
moved = anyio.Event()
MUTE = "mute" in sys.argv


def move() -> None:
    global moved
    before, moved = moved, anyio.Event()
    before.set()


async def expect_taken(uri: str) -> None:
    if uri == "memo://none":
        raise MCPError(code=t.INVALID_PARAMS, message=f"no {uri}", data={"uri": uri})
    if MUTE and uri != "memo://heard":
        await anyio.sleep_forever()


def take(key: object, uri: str, tell: Tell) -> None:
    subscribed[key] = uri, tell
    made[uri] += 1
    move()


def leave(key: object) -> None:
    subscribed.pop(key, None)
    move()


def of(context: Any, uri: str) -> object:
    id = context.request.headers.get("mcp-session-id") if context.request is not None else None
    return id, uri


async def subscribe(context: Any, params: t.SubscribeRequestParams) -> t.EmptyResult:
    uri = str(params.uri)
    await expect_taken(uri)
    take(of(context, uri), uri, context.session.send_resource_updated)
    return t.EmptyResult()


async def unsubscribe(context: Any, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
    leave(of(context, str(params.uri)))
    return t.EmptyResult()


async def listen(context: Any, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
    meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}

    async def tell(uri: str) -> None:
        told = t.ResourceUpdatedNotificationParams.model_validate({"uri": uri, "_meta": meta})
        await context.session.send_notification(
            t.ResourceUpdatedNotification(params=told), related_request_id=context.request_id
        )

    uris = [str(uri) for uri in params.notifications.resource_subscriptions or ()]
    for uri in uris:
        await expect_taken(uri)
    honoured = {"notifications": params.notifications.model_dump(by_alias=True, exclude_none=True), "_meta": meta}
    acknowledged = t.SubscriptionsAcknowledgedNotificationParams.model_validate(honoured)
    await context.session.send_notification(
        t.SubscriptionsAcknowledgedNotification(params=acknowledged), related_request_id=context.request_id
    )
    try:
        for uri in uris:
            take((context.request_id, uri), uri, tell)
        await anyio.sleep_forever()
    finally:
        for uri in uris:
            leave((context.request_id, uri))
    return t.SubscriptionsListenResult()


async def change(uri: str) -> None:
    for own, tell in [*subscribed.values()]:
        if uri.startswith(own):
            await tell(uri)


async def read_resource(context: Any, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    uri, text = str(params.uri), "read"
    match uri.split(":", 3):
        case ["ctl", "change", *_]:
            await change(uri.removeprefix("ctl:change:"))
        case ["ctl", "flood", number, wanted]:
            for each in range(int(number)):
                await change(wanted.replace("*", str(each)))
        case ["ctl", "await", number, wanted]:
            while sum(own == wanted for own, _ in subscribed.values()) != int(number):
                await moved.wait()
        case ["ctl", "made"]:
            text = json.dumps(made)
        case ["ctl", "end"]:
            os._exit(1)
        case _:
            pass
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, text=text)])


async def list_resources(context: Any, params: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=[t.Resource(name="a", uri="memo://a")])


def server() -> Server[Any]:
    told: dict[str, Any] = {
        "on_subscribe_resource": subscribe,
        "on_unsubscribe_resource": unsubscribe,
        "on_subscriptions_listen": listen,
    }
    more = {} if "deaf" in sys.argv else told
    return Server("changing", version="1", on_list_resources=list_resources, on_read_resource=read_resource, **more)


async def on_stdio() -> None:
    own = server()
    async with stdio_server() as (read, write):
        await own.run(read, write, own.create_initialization_options())


def over_http() -> None:
    manager = StreamableHTTPSessionManager(server())

    @contextlib.asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))], lifespan=running)
    door = socket.create_server(("127.0.0.1", 0))
    print(door.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[door])


if __name__ == "__main__":
    over_http() if "http" in sys.argv else anyio.run(on_stdio)
