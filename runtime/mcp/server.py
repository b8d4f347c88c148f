"""The runtime as an MCP server: what it lists, reads and tells by itself; `calls` makes the calls of tools.

No transport: http.py serves it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp.types as t
from mcp.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from tenuto import __version__
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp import completion, exported, prompts, resources
from tenuto.runtime.mcp.asked_first import Answers, AskedFirst, relayed, settled
from tenuto.runtime.mcp.calls import Calls
from tenuto.runtime.mcp.direct_calls import DirectCalls
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.news import News, expect_few
from tenuto.runtime.mcp.own_tools import own_tools
from tenuto.runtime.mcp.paging import paged, whole
from tenuto.runtime.mcp.prompt_files import PromptFiles
from tenuto.runtime.mcp.protocol_errors import as_protocol_errors, expect_json
from tenuto.runtime.mcp.server_base import INSTRUCTIONS, NAME, SHOWN, AnnouncingServer, CallResult, Context
from tenuto.runtime.mcp.task_answers import CAPABILITY, TaskCreated
from tenuto.runtime.mcp.task_requests import TaskRequests
from tenuto.runtime.mcp.tasks import Tasks
from tenuto.runtime.mcp.watched import Watched
from tenuto.sessions.principal import Principal

TOOLS_PAGE = 250
PROMPTS_PAGE = 100


@dataclass(frozen=True, slots=True)
class Patience:
    """After how long a call of `chat` goes on as a task, where its client knows tasks, and how long one is kept whose
    session nobody has named."""

    task_after_s: float
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Seal:
    """How long what a client carries from a question to its answer is taken, and the key of 32 bytes that seals it."""

    key: bytes
    expires_s: float


def build_server(
    runner: LoopPort,
    news: News,
    files: PromptFiles,
    behind: Behind,
    watched: Watched,
    direct: DirectCalls,
    *,
    principal_of: Callable[[Any], Principal],
    seal: Seal,
    patience: Patience,
) -> Server[Any]:
    """The runtime as an MCP server.

    `principal_of` tells who made an HTTP request, which has been let in before.
    """
    tasks = Tasks(runner, patience.ttl_s)
    about_tasks = TaskRequests(runner, news, tasks, principal_of)
    calls = Calls(runner, news, behind, direct, principal_of, tasks, task_after_s=patience.task_after_s)
    desk = _Desk(runner, news, files, behind, watched, principal_of, calls, about_tasks)
    server = AnnouncingServer(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        **SHOWN,
        on_list_tools=desk.list_tools,
        on_list_resources=desk.list_resources,
        on_list_resource_templates=desk.list_templates,
        on_read_resource=desk.read_resource,
        on_subscribe_resource=desk.subscribe,
        on_unsubscribe_resource=desk.unsubscribe,
        on_subscriptions_listen=desk.listen,
        on_list_prompts=desk.list_prompts,
        on_get_prompt=desk.get_prompt,
        on_completion=desk.complete,
    )
    # Not by the constructor: it warns whoever starts a server that the newer protocol has no such request.
    server.add_request_handler("logging/setLevel", t.SetLevelRequestParams, desk.set_log_level)
    security = RequestStateSecurity(
        keys=[seal.key], ttl=seal.expires_s, bind_principal=lambda context: principal_of(context.request).id
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    # Not by the constructor: it knows of no extensions to what a call is answered.
    server.add_request_handler("tools/call", t.CallToolRequestParams, desk.call_tool)
    server.tasks = CAPABILITY
    about_tasks.serve(server)
    return server


class _Desk:
    """The handlers, over one runner. Event-loop thread only."""

    def __init__(
        self,
        runner: LoopPort,
        news: News,
        files: PromptFiles,
        behind: Behind,
        watched: Watched,
        principal_of: Callable[[Any], Principal],
        calls: Calls,
        about_tasks: TaskRequests,
    ) -> None:
        self._runner, self._news, self._files, self._behind = runner, news, files, behind
        self._watched, self._principal_of = watched, principal_of
        self._calls, self._about_tasks = calls, about_tasks

    def _who(self, context: Context) -> Principal:
        return self._principal_of(context.request)

    async def list_tools(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        """A page of our own tools, then of the registry's."""
        self._news.has_listed_tools(self._who(context).id, context)
        with as_protocol_errors("tools/list"):
            behind = self._behind.tools(self._who(context)).items()
            tools = [*own_tools(), *(exported.listed(name, each) for name, each in behind)]
            page, after = await paged([whole("tools", tools)], _cursor(params), TOOLS_PAGE)
            return t.ListToolsResult(tools=page, next_cursor=after)

    async def list_resources(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListResourcesResult:
        """A page of the caller's sessions, then of the models and of what the servers behind have."""
        self._news.has_listed_sessions(self._who(context).id, context)
        with as_protocol_errors("resources/list"):
            who = self._who(context)
            sources = [*resources.sources(self._runner, who), self._behind.resources(who)]
            page, after = await paged(sources, _cursor(params), resources.PAGE)
            return t.ListResourcesResult(resources=page, next_cursor=after)

    async def list_templates(
        self, context: Context, params: t.PaginatedRequestParams | None
    ) -> t.ListResourceTemplatesResult:
        """How resources are named."""
        with as_protocol_errors("resources/templates/list"):
            known = [*resources.templates(), *self._behind.templates(self._who(context))]
            page, after = await paged([whole("templates", known)], _cursor(params), resources.PAGE)
            return t.ListResourceTemplatesResult(resource_templates=page, next_cursor=after)

    async def read_resource(self, context: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        """One resource."""
        with as_protocol_errors("resources/read"):
            uri, who = str(params.uri), self._who(context)
            if self._behind.is_theirs(uri):
                return await self._behind.read(who, uri)
            return await resources.read(self._runner, who, uri)

    async def list_prompts(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListPromptsResult:
        """A page of the folder's prompts, then of those of the servers behind."""
        self._news.has_listed_prompts(self._who(context).id, context)
        with as_protocol_errors("prompts/list"):
            found = await prompts.listed(self._files)
            behind = self._behind.prompts(self._who(context), [each.name for each in found])
            page, after = await paged([whole("files", found), behind], _cursor(params), PROMPTS_PAGE)
            return t.ListPromptsResult(prompts=page, next_cursor=after)

    async def get_prompt(
        self, context: Context, params: t.GetPromptRequestParams
    ) -> t.GetPromptResult | t.InputRequiredResult:
        """One of them, or what its server asks first."""
        with as_protocol_errors("prompts/get"):
            own = await prompts.names(self._files)
            if params.name in own:
                return await prompts.filled(self._files, params)
            who, arguments = self._who(context), params.arguments or {}

            async def get(answers: Answers) -> t.GetPromptResult | t.InputRequiredResult:
                found = await self._behind.get_prompt(who, params.name, arguments, own, answers)
                return relayed(context, found) if isinstance(found, AskedFirst) else found

            return await settled(context, params, get)

    async def complete(self, context: Context, params: t.CompleteRequestParams) -> t.CompleteResult:
        """How an argument of one, or an id in a resource's URI, can go on."""
        with as_protocol_errors("completion/complete"):
            own, who = await prompts.names(self._files), self._who(context)
            if not self._behind.completes(params.ref, own):
                return await completion.completed(self._files, self._runner, who, params)
            return await self._behind.complete(who, params, own)

    async def subscribe(self, context: Context, params: t.SubscribeRequestParams) -> t.EmptyResult:
        """The older protocol's way to hear of a session, also of one that comes later, of a run, or of a resource of
        theirs."""
        uri, who = str(params.uri), self._who(context)
        with as_protocol_errors("resources/subscribe"):
            hold = partial(self._watched.hold, who, uri) if self._behind.is_theirs(uri) else None
            if hold is None:
                await resources.expect_subscribable(self._runner, who, uri)
            await self._news.subscribe(who.id, context, uri, hold)
            return t.EmptyResult()

    async def unsubscribe(self, context: Context, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        """And to hear of it no longer."""
        self._news.unsubscribe(self._who(context).id, context, str(params.uri))
        return t.EmptyResult()

    async def listen(self, context: Context, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """The newer protocol's way to hear of anything."""
        wanted, who = params.notifications.resource_subscriptions or (), self._who(context)
        with as_protocol_errors("subscriptions/listen"):
            expect_few(len(wanted))
            for uri in wanted:
                if not self._behind.is_theirs(uri):
                    await resources.expect_subscribable(self._runner, who, uri)
            of_ours = partial(self._news.listen, who.id)
            of_tasks = partial(self._about_tasks.listen, plain=of_ours)
            return await self._watched.listen(who, context, params, of_tasks)

    async def set_log_level(self, context: Context, params: t.SetLevelRequestParams) -> t.EmptyResult:
        """The older protocol's way to say which messages of runs are wanted."""
        self._news.set_log_level(self._who(context).id, context, params.level)
        return t.EmptyResult()

    async def call_tool(self, context: Context, params: t.CallToolRequestParams) -> CallResult | TaskCreated:
        """Any tool."""
        return await self._calls.call(context, params)


def _cursor(params: t.PaginatedRequestParams | None) -> str | None:
    cursor = None if params is None else params.cursor
    expect_json("the cursor", cursor)
    return cursor
