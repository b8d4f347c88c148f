"""MCP on stdin and stdout, for clients that start a program: a proxy to the server that owns the data folder.

It answers the handshake by itself, at once; the owner is found, or started, with the first request that needs it, and
found again when it has restarted. It holds no model, no session and no tool.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import httpx2
import mcp.types as t
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types.version import LATEST_PROTOCOL_VERSION
from pydantic import ValidationError

from tenuto import __version__
from tenuto.errors import ServerUnreachable, TenutoError
from tenuto.runtime.data_folder.local_server import LocalServer
from tenuto.runtime.data_folder.ownership import Owner
from tenuto.runtime.mcp.asked_first import Answers, settled
from tenuto.runtime.mcp.log_relay import LogRelay
from tenuto.runtime.mcp.relay import Relay
from tenuto.runtime.mcp.server_base import (
    BEHIND_META_KEY,
    INSTRUCTIONS,
    NAME,
    SHOWN,
    AnnouncingServer,
    CallResult,
    Context,
    failure,
    put_now,
)
from tenuto.runtime.mcp.task_relay import TakesTasks, TaskRelay, behind, told

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
READ_S = 300.0
"""Between two pieces of an answer; the owner pings every 15 s, so this bounds only one that hangs."""
QUESTIONS = 64
"""How often one call may ask its person something."""


def run(local_server: LocalServer) -> None:
    """Serve until stdin ends. The log goes to stderr, as the protocol wants it."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="tenuto mcp: %(message)s")
    logging.captureWarnings(True)
    anyio.run(_run, local_server)


async def _run(local_server: LocalServer) -> None:
    async with anyio.create_task_group() as group:
        server = proxy(local_server, group)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        group.cancel_scope.cancel()


def proxy(local_server: LocalServer, group: TaskGroup) -> Server[Any]:
    """The proxy as an MCP server for one client. Its connections to the owner live in `group`."""
    upstream = _Upstream(local_server, group)
    forward = _Forward(upstream, Relay(upstream.connection, group))
    server = AnnouncingServer(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        **SHOWN,
        on_list_tools=forward.list_tools,
        on_list_resources=forward.list_resources,
        on_list_resource_templates=forward.list_templates,
        on_read_resource=forward.read_resource,
        on_subscribe_resource=forward.subscribe,
        on_unsubscribe_resource=forward.unsubscribe,
        on_subscriptions_listen=forward.listen,
        on_list_prompts=forward.list_prompts,
        on_get_prompt=forward.get_prompt,
        on_completion=forward.complete,
    )
    server.add_request_handler("logging/setLevel", t.SetLevelRequestParams, forward.set_log_level)
    # Not by the constructor: it knows of no extensions to what a call is answered.
    server.add_request_handler("tools/call", t.CallToolRequestParams, forward.call_tool)
    TaskRelay(upstream.client).serve(server)
    return server


class _Forward:
    """Every request of the client, made at the owner."""

    def __init__(self, upstream: "_Upstream", relay: Relay) -> None:
        self._upstream, self._relay = upstream, relay

    async def list_tools(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        """The owner's tools; from now on a client of the older protocol is told when they change."""
        with _as_protocol_errors():
            client = await self._upstream.client()
            self._relay.tools_are_known(context)
            return await client.list_tools(cursor=_cursor(params))

    async def call_tool(self, context: Context, params: t.CallToolRequestParams) -> CallResult | dict[str, Any]:
        """A call; what goes wrong with it is a result in words."""
        try:
            return await self._upstream.call(context, params)
        except TenutoError as exc:
            return failure(f"{exc.code}: {exc}")
        except MCPError as exc:
            if exc.error.code != t.CONNECTION_CLOSED:
                raise
            return failure("the server stopped during the call; the call may have had an effect")
        except (RuntimeError, ValidationError):
            logger.exception("the answer to %s could not be read", params.name)
            return failure("internal: the server's answer could not be read")

    async def list_resources(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListResourcesResult:
        """The owner's sessions; from now on a client of the older protocol is told when the list changes."""
        with _as_protocol_errors():
            client = await self._upstream.client()
            self._relay.sessions_are_known(context)
            return await client.list_resources(cursor=_cursor(params))

    async def list_templates(
        self, _context: Context, params: t.PaginatedRequestParams | None
    ) -> t.ListResourceTemplatesResult:
        """How they are named."""
        with _as_protocol_errors():
            return await (await self._upstream.client()).list_resource_templates(cursor=_cursor(params))

    async def read_resource(self, _context: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        """One of them."""
        with _as_protocol_errors():
            return await (await self._upstream.client()).read_resource(str(params.uri))

    async def list_prompts(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListPromptsResult:
        """The owner's prompts."""
        with _as_protocol_errors():
            client = await self._upstream.client()
            self._relay.prompts_are_known(context)
            return await client.list_prompts(cursor=_cursor(params))

    async def get_prompt(
        self, context: Context, params: t.GetPromptRequestParams
    ) -> t.GetPromptResult | t.InputRequiredResult:
        """One of them, or what is asked first."""

        async def get(answers: Answers) -> t.GetPromptResult | t.InputRequiredResult:
            return await (await self._upstream.client()).session.get_prompt(
                params.name,
                params.arguments,
                input_responses=answers.responses,
                request_state=answers.state,
                meta=cast("t.RequestParamsMeta", {BEHIND_META_KEY: behind(context)}),
                allow_input_required=True,
            )

        with _as_protocol_errors():
            return await settled(context, params, get)

    async def complete(self, _context: Context, params: t.CompleteRequestParams) -> t.CompleteResult:
        """How an argument can go on."""
        argument = {"name": params.argument.name, "value": params.argument.value}
        known = None if params.context is None else params.context.arguments
        with _as_protocol_errors():
            return await (await self._upstream.client()).complete(params.ref, argument, known)

    async def subscribe(self, context: Context, params: t.SubscribeRequestParams) -> t.EmptyResult:
        """Tell a client of the older protocol when a session or another resource has changed."""
        with _as_protocol_errors():
            await self._upstream.client()
            await self._relay.subscribe(context, str(params.uri))
            return t.EmptyResult()

    async def unsubscribe(self, _context: Context, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        """End a subscription to a resource."""
        self._relay.unsubscribe(str(params.uri))
        return t.EmptyResult()

    async def set_log_level(self, _context: Context, params: t.SetLevelRequestParams) -> t.EmptyResult:
        """Which messages of runs a client of the older protocol wants."""
        self._upstream.logs.level = params.level
        return t.EmptyResult()

    async def listen(self, context: Context, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """Tell a client of the newer protocol of what it wants to hear of."""
        with _as_protocol_errors():
            await self._upstream.client()
            return await self._relay.listen(context, params)


def _cursor(params: t.PaginatedRequestParams | None) -> str | None:
    return None if params is None else params.cursor


@contextmanager
def _as_protocol_errors() -> Iterator[None]:
    try:
        yield
    except TenutoError as exc:
        raise MCPError(code=t.INTERNAL_ERROR, message=f"{exc.code}: {exc}") from exc


@dataclass(slots=True)
class _Connection:
    """A client of the owner, alive until it is closed or breaks."""

    owner: Owner
    client: Client
    closing: anyio.Event = field(default_factory=anyio.Event)
    broken: bool = False


class _Upstream:
    """The owner as the proxy sees it. Its connection lives in a task of its own, as the SDK's clients must."""

    def __init__(self, local_server: LocalServer, group: TaskGroup) -> None:
        self._local_server, self._group = local_server, group
        self._lock = anyio.Lock()
        self.logs = LogRelay()
        self._latest: _Connection | None = None
        self._came = anyio.Event()

    async def connection(self) -> Client:
        """The client of a connection that a request has made; waits until there is one.

        It makes none: a server that somebody has stopped is not started only to be listened to.
        """
        while self._latest is None or self._latest.broken:
            await self._came.wait()
        return self._latest.client

    async def client(self) -> Client:
        """A connection to whoever owns the data folder now. Checked before each request: the owner may be a new one.

        Raises:
            TenutoError: there is no owner, and none could be started or reached.
        """
        async with self._lock:
            owner = await self._local_server.owner()
            connection = self._latest
            if connection is None or connection.broken or connection.owner != owner:
                if connection is not None:
                    connection.closing.set()
                connection = self._latest = await self._group.start(self._hold, owner)
                came, self._came = self._came, anyio.Event()
                came.set()
            return connection.client

    async def call(self, context: Context, params: t.CallToolRequestParams) -> CallResult | dict[str, Any]:
        """Make a call at the owner; what it asks meanwhile is asked of our own client."""
        client, own = await self.client(), behind(context)
        wants_progress = context.meta is not None and "progress_token" in context.meta
        responses, state = params.input_responses, params.request_state
        for _ in range(QUESTIONS):
            with self.logs.of(context) as meta:
                result = await client.session.call_tool(
                    params.name,
                    params.arguments,
                    progress_callback=context.session.report_progress if wants_progress else None,
                    input_responses=responses,
                    request_state=state,
                    meta=cast("t.RequestParamsMeta", {**meta, BEHIND_META_KEY: own}),
                    allow_input_required=True,
                    allow_claimed=True,
                )
            if not isinstance(result, t.CallToolResult | t.InputRequiredResult):
                return told(result)
            if isinstance(result, t.CallToolResult) or not context.session.can_send_request:
                return result
            requests = result.input_requests or {}
            responses = {key: await put_now(context, request) for key, request in requests.items()}
            state = result.request_state
        return failure(f"the call asked more than {QUESTIONS} questions")

    async def _hold(self, owner: Owner, *, task_status: TaskStatus[_Connection]) -> None:
        """Keep one connection open. What breaks it after the start is noted, and the next request makes another."""
        connection: _Connection | None = None
        headers = {"Authorization": f"Bearer {owner.secret}"}
        try:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(CONNECT_S, read=READ_S)) as http,
                Client(
                    streamable_http_client(f"{owner.url}/mcp", http_client=http),
                    mode=LATEST_PROTOCOL_VERSION,
                    cache=None,
                    client_info=t.Implementation(name="tenuto mcp", version=__version__),
                    logging_callback=self.logs.take,
                    extensions=[TakesTasks()],
                ) as client,
            ):
                connection = _Connection(owner, client)
                task_status.started(connection)
                await connection.closing.wait()
        except Exception as exc:
            if connection is None:
                raise ServerUnreachable(f"the server at {owner.url} cannot be reached") from exc
            logger.info("the connection to %s broke", owner.url, exc_info=True)
        finally:
            if connection is not None:
                connection.broken = True
