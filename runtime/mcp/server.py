"""The runtime as an MCP server: its own tools, every tool of the registry under its exported name, and sessions.

No transport: http.py serves it. The SDK validates no arguments and tells clients of the older protocol the text of any
exception, so both are done here: arguments are checked, and no exception leaves a call.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from tenuto import __version__
from tenuto.errors import InvalidRequest, NotFound, TenutoError
from tenuto.runtime.loop.decisions import DENIED
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.mcp import approval, chat, exported, handles, prompts, resources
from tenuto.runtime.mcp.news import News
from tenuto.runtime.mcp.own_tools import INPUTS, RUN_RESUME, own_tools
from tenuto.runtime.mcp.prompt_files import PromptFiles
from tenuto.runtime.mcp.server_base import INSTRUCTIONS, NAME, AnnouncingServer, CallResult, Context, can_ask, failure
from tenuto.runtime.schema.conversion import told_event
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus
from tenuto.tools.validate import without_nulls

logger = logging.getLogger(__name__)

GOODBYE_S = 10.0
"""How long a run may take to notice that its client has gone."""


@dataclass(frozen=True, slots=True)
class Seal:
    """How long what a client carries from a question to its answer is taken, and the key of 32 bytes that seals it."""

    key: bytes
    expires_s: float


def build_server(
    runner: LoopPort, news: News, files: PromptFiles, *, principal_of: Callable[[Any], Principal], seal: Seal
) -> Server[Any]:
    """The runtime as an MCP server.

    `principal_of` tells who made an HTTP request, which has been let in before.
    """
    desk = _Desk(runner, news, files, principal_of)
    server = AnnouncingServer(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=desk.list_tools,
        on_call_tool=desk.call_tool,
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
    security = RequestStateSecurity(
        keys=[seal.key], ttl=seal.expires_s, bind_principal=lambda context: principal_of(context.request).id
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    return server


class _Desk:
    """The handlers, over one runner. Event-loop thread only."""

    def __init__(
        self, runner: LoopPort, news: News, files: PromptFiles, principal_of: Callable[[Any], Principal]
    ) -> None:
        self._runner, self._news, self._files, self._principal_of = runner, news, files, principal_of

    def _who(self, context: Context) -> Principal:
        return self._principal_of(context.request)

    async def list_tools(self, context: Context, _params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        """Our own tools, then the registry's, in one page."""
        self._news.has_listed_tools(self._who(context).id, context)
        return t.ListToolsResult(
            tools=[*own_tools(), *(exported.listed(each) for each in self._runner.registry.list())]
        )

    async def list_resources(self, context: Context, params: t.PaginatedRequestParams | None) -> t.ListResourcesResult:
        """A page of the caller's sessions."""
        self._news.has_listed_sessions(self._who(context).id, context)
        cursor = None if params is None else params.cursor
        with as_protocol_errors("resources/list"):
            expect_json("the cursor", cursor)
            return await resources.listed(self._runner, self._who(context), cursor)

    async def list_templates(
        self, _context: Context, _params: t.PaginatedRequestParams | None
    ) -> t.ListResourceTemplatesResult:
        """How a session's resource is named."""
        return resources.templates()

    async def read_resource(self, context: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        """One session."""
        with as_protocol_errors("resources/read"):
            return await resources.read(self._runner, self._who(context), str(params.uri))

    async def list_prompts(self, _context: Context, _params: t.PaginatedRequestParams | None) -> t.ListPromptsResult:
        """The prompts of the folder, in one page."""
        with as_protocol_errors("prompts/list"):
            return await prompts.listed(self._files)

    async def get_prompt(self, _context: Context, params: t.GetPromptRequestParams) -> t.GetPromptResult:
        """One of them."""
        with as_protocol_errors("prompts/get"):
            return await prompts.filled(self._files, params)

    async def complete(self, context: Context, params: t.CompleteRequestParams) -> t.CompleteResult:
        """How an argument of one, or a session's id, can go on."""
        with as_protocol_errors("completion/complete"):
            return await prompts.completed(self._files, self._runner, self._who(context), params)

    async def subscribe(self, context: Context, params: t.SubscribeRequestParams) -> t.EmptyResult:
        """The older protocol's way to hear of a session, also of one that comes later."""
        resources.expect_ours(str(params.uri))
        self._news.subscribe(self._who(context).id, context, str(params.uri))
        return t.EmptyResult()

    async def unsubscribe(self, context: Context, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        """And to hear of it no longer."""
        self._news.unsubscribe(self._who(context).id, context, str(params.uri))
        return t.EmptyResult()

    async def listen(self, context: Context, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """The newer protocol's way to hear of anything."""
        for uri in params.notifications.resource_subscriptions or ():
            resources.expect_ours(uri)
        return await self._news.listen(self._who(context).id, context, params)

    async def call_tool(self, context: Context, params: t.CallToolRequestParams) -> CallResult:
        """Any of them. Whatever goes wrong is a result in words."""
        try:
            return await self._dispatch(context, params)
        except MCPError:
            raise
        except TenutoError as exc:
            return failure(f"{exc.code}: {exc}", exc.data)
        except Exception:
            logger.exception("the call of %s over MCP failed", params.name)
            return failure("internal: the call failed inside the server; its log has the details")

    async def _dispatch(self, context: Context, params: t.CallToolRequestParams) -> CallResult:
        principal = self._who(context)
        arguments = params.arguments or {}
        name = params.name
        expect_json("the arguments", arguments)
        if name in INPUTS:
            arguments = without_nulls(INPUTS[name], arguments)
            await self._check(arguments, INPUTS[name])
            params = params.model_copy(update={"arguments": arguments})
        if name == chat.CHAT:
            return await self._chat(context, params, principal)
        if name == RUN_RESUME:
            return await self._resume(context, params, principal)
        if name in INPUTS:
            return success(await handles.answer(self._runner, principal, name, arguments))
        return await self._call(context, params, principal)

    async def _call(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Call a server's tool for whoever asks, once a person has said yes where that is needed."""
        name, arguments, approved = params.name, params.arguments or {}, False
        if self._runner.registry.known(name) is None:
            raise MCPError(
                code=t.INVALID_PARAMS, message=f"Unknown tool: {name[:100]!r}; tools/list names those there are"
            )
        if can_ask(context) and self._runner.needs_word(principal, name):
            question = approval.CallQuestion(name, arguments, self._runner.registry.known(name))
            if params.request_state is not None:
                decision = question.answered(params)
            elif not context.session.can_send_request:
                return question.put()
            else:
                decision = await question.ask(context)
            if decision is None:
                return failure(f"nothing was decided, so {name} was not called")
            if not decision.approve:
                return failure(" ".join(filter(None, (DENIED, decision.message))))
            approved = True
        report = context.session.report_progress
        result = await self._runner.call_tool(principal, name, arguments, progress=report, approved=approved)
        return exported.result(result)

    async def _chat(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Answer one turn."""
        answer = approval.answered(params)
        if answer is not None:
            return await self._answered(context, principal, answer)
        run = await self._runner.start(self._turn(principal, params.arguments or {}))
        return await self._follow(context, principal, run, chat.RunProgress(context.session.report_progress))

    async def _resume(self, context: Context, params: t.CallToolRequestParams, principal: Principal) -> CallResult:
        """Give a run what it waits for, and answer its next leg."""
        answer = approval.answered(params)
        if answer is not None:
            return await self._answered(context, principal, answer)
        run = await handles.resume(self._runner, principal, params.arguments or {})
        return await self._follow(context, principal, run, chat.RunProgress(context.session.report_progress))

    async def _answered(self, context: Context, principal: Principal, answer: approval.Answered) -> CallResult:
        """Go on with a run after the approval that an earlier call of the same turn asked for."""
        if answer.decision is None:
            return failure(f"nothing was decided; the approval {answer.pause_id} is still open")
        run = await self._decide(principal, answer.pause_id, answer.decision)
        progress = chat.RunProgress(context.session.report_progress, first=answer.first, told=answer.last)
        return await self._follow(context, principal, run, progress)

    async def _check(self, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
        """Raise InvalidRequest where the arguments do not fit the schema."""
        if wrong := await self._runner.registry.check(schema, arguments):
            raise InvalidRequest("the arguments are not valid: " + "; ".join(wrong))

    def _turn(self, principal: Principal, arguments: dict[str, Any]) -> Turn:
        return chat.turn(principal, arguments, server_of=self._server_of)

    async def _follow(
        self, context: Context, principal: Principal, run: Follower, progress: chat.RunProgress
    ) -> CallResult:
        """Show a run to the client until it ends or waits for what the client cannot be asked for."""
        while True:
            answer = await _watch(run, progress)
            if answer.pause is None or not approval.is_question(answer.pause) or not can_ask(context):
                return _chat_result(answer, progress)
            if not context.session.can_send_request:
                return approval.question(answer.pause, first=progress.first or 1, last=progress.last or 0)
            decision = await approval.ask(context, answer.pause)
            if decision is None:
                return _chat_result(answer, progress)
            run = await self._decide(principal, str(answer.pause.pause_id), decision)

    async def _decide(self, principal: Principal, pause_id: str, decision: approval.FormAnswer) -> Follower:
        run = await self._runner.decide(
            principal, pause_id, approve=decision.approve, message=decision.message, remember=decision.remember
        )
        return Follower(run, claims=True)

    def _server_of(self, name: str) -> str:
        found = self._runner.registry.find(name)
        if found is None:
            raise NotFound("tool", name, [each.name for each in self._runner.registry.list()])
        return found.server


async def _watch(run: Follower, progress: chat.RunProgress) -> Answer:
    """Tell of the run up to its next rest, and give the answer then. If the client goes away, so does the run."""
    done = False
    try:
        async for number, event in run.events(progress.last):
            await progress.see(told_event(number, event))
        await progress.flush()
        answer = await run.answer()
        done = True
        return answer
    finally:
        if not done:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await run.disconnected()


@contextmanager
def as_protocol_errors(method: str) -> Iterator[None]:
    """What is no call of a tool has no result to tell a failure in. Nobody is told the text of a bug."""
    try:
        yield
    except MCPError:
        raise
    except (InvalidRequest, NotFound) as exc:
        raise MCPError(code=t.INVALID_PARAMS, message=f"{exc.code}: {exc}") from exc
    except TenutoError as exc:
        raise MCPError(code=t.INTERNAL_ERROR, message=f"{exc.code}: {exc}") from exc
    except Exception as exc:
        logger.exception("%s over MCP failed", method)
        raise MCPError(code=t.INTERNAL_ERROR, message="internal: the server's log has the details") from exc


def success(structured: dict[str, Any], text: str | None = None) -> t.CallToolResult:
    """A result that programs read as JSON. Where it has a text of its own, the JSON beside it leaves that out."""
    facts = structured if text is None else {key: value for key, value in structured.items() if key != "text"}
    blocks = [json.dumps(facts, ensure_ascii=False)] if text is None else [text, json.dumps(facts, ensure_ascii=False)]
    content: list[t.ContentBlock] = [t.TextContent(type="text", text=block) for block in blocks]
    return t.CallToolResult(content=content, structured_content=structured)


def expect_json(what: str, value: Any) -> None:
    """Raise InvalidRequest for what Python's reader lets pass though JSON has no such values: they cannot be kept."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as exc:
        half = f"U+{ord(exc.object[exc.start]):04X}"
        raise InvalidRequest(f"{what} must be valid Unicode: there is a lone surrogate, {half}") from None
    except ValueError:
        raise InvalidRequest(f"{what} must be valid JSON: NaN and infinities are not allowed") from None


def _chat_result(answer: Answer, progress: chat.RunProgress) -> t.CallToolResult:
    if answer.status is RunStatus.FAILED:
        failed = f"{answer.error_code or 'internal'}: {answer.error or 'the run failed'}"
        return failure(failed, {"run_id": answer.run_id, "session_id": answer.session_id})
    shown = success(chat.result(answer, progress), progress.text)
    if (waiting := chat.waiting(answer)) is not None:
        shown.content.insert(1, t.TextContent(type="text", text=waiting))
    return shown
