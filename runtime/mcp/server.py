"""The runtime as an MCP server: `chat`, `session_get`, and every tool of the registry under its exported name.

No transport: http.py serves it. The SDK validates no arguments and tells clients of the older protocol the text of any
exception, so both are done here: arguments are checked, and no exception leaves a call.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from tenuto import __version__
from tenuto.errors import InvalidRequest, NotFound, TenutoError
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runner import Runner
from tenuto.runtime.mcp import approval, chat
from tenuto.runtime.mcp.face import INSTRUCTIONS, NAME, CallResult, Context, can_ask, failure
from tenuto.sessions.records import RunStatus
from tenuto.tools.registry import Exported
from tenuto.tools.validate import problems

logger = logging.getLogger(__name__)

SESSION_GET = "session_get"
GOODBYE_S = 10.0
"""How long a run may take to notice that its client has gone."""

_SESSION_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"session_id": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}},
    "required": ["session_id"],
    "additionalProperties": False,
}


def build_server(runner: Runner, *, principal_of: Callable[[Any], str]) -> Server[Any]:
    """The runtime as an MCP server.

    `principal_of` tells who made an HTTP request, which has been let in before.
    """
    desk = _Desk(runner, principal_of)
    return Server(
        NAME, version=__version__, instructions=INSTRUCTIONS, on_list_tools=desk.list_tools, on_call_tool=desk.call_tool
    )


class _Desk:
    """The handlers, over one runner. Event-loop thread only."""

    def __init__(self, runner: Runner, principal_of: Callable[[Any], str]) -> None:
        self._runner, self._principal_of = runner, principal_of

    async def list_tools(self, _context: Context, _params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        """Our own tools, then the registry's, in one page."""
        return t.ListToolsResult(tools=[*_own_tools(), *(_listed(each) for each in self._runner.registry.list())])

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
        principal = self._principal_of(context.request)
        arguments = params.arguments or {}
        match params.name:
            case chat.CHAT:
                check(arguments, chat.INPUT_SCHEMA)
                return await self._chat(context, params, principal)
            case name if name == SESSION_GET:
                check(arguments, _SESSION_INPUT)
                return success(await self._runner.export_session(principal, arguments["session_id"]))
            case name:
                result = await self._runner.call_tool(
                    principal, name, arguments, progress=context.session.report_progress
                )
                content: list[t.ContentBlock] = [t.TextContent(type="text", text=result.text)]
                return t.CallToolResult(content=content, structured_content=result.structured, is_error=result.is_error)

    async def _chat(self, context: Context, params: t.CallToolRequestParams, principal: str) -> CallResult:
        """Answer one turn, or go on with a run after the approval that an earlier call of the same turn asked for."""
        report = context.session.report_progress
        answer = approval.answered(params)
        if answer is None:
            run = await self._runner.start(self._turn(context, principal, params.arguments or {}))
            return await self._follow(context, principal, run, chat.Telling(report))
        if answer.decision is None:
            return failure(f"nothing was decided; the approval {answer.pause_id} is still open")
        run = await self._decide(principal, answer.pause_id, answer.decision)
        return await self._follow(context, principal, run, chat.Telling(report, first=answer.first, told=answer.last))

    def _turn(self, context: Context, principal: str, arguments: dict[str, Any]) -> Turn:
        return chat.turn(
            principal,
            arguments,
            server_of=self._server_of,
            can_ask=can_ask(context),
        )

    async def _follow(self, context: Context, principal: str, run: Run, telling: chat.Telling) -> CallResult:
        """Show a run to the client until it ends or waits for what the client cannot be asked for."""
        while True:
            answer = await _watch(run, telling)
            if answer.pause is None or not approval.is_question(answer.pause) or not can_ask(context):
                return _chat_result(answer, telling)
            if not context.session.can_send_request:
                return approval.question(answer.pause, first=telling.first or 1, last=telling.last or 0)
            decision = await approval.ask(context, answer.pause)
            if decision is None:
                return _chat_result(answer, telling)
            run = await self._decide(principal, str(answer.pause.pause_id), decision)

    async def _decide(self, principal: str, pause_id: str, decision: approval.Decision) -> Run:
        return await self._runner.decide(
            principal, pause_id, approve=decision.approve, message=decision.message, remember=decision.remember
        )

    def _server_of(self, name: str) -> str:
        found = self._runner.registry.find(name)
        if found is None:
            raise NotFound("tool", name, [each.name for each in self._runner.registry.list()])
        return found.server


async def _watch(run: Run, telling: chat.Telling) -> Answer:
    """Tell of the run up to its next rest, and give the answer then. If the client goes away, so does the run."""
    done = False
    try:
        async for number, event in run.events(telling.last):
            await telling.see(number, event)
        await telling.flush()
        answer = await run.answer()
        done = True
        return answer
    finally:
        if not done:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await run.disconnected()


def success(structured: dict[str, Any], text: str | None = None) -> t.CallToolResult:
    """A result that programs read as JSON. Where it has a text of its own, the JSON beside it leaves that out."""
    facts = structured if text is None else {key: value for key, value in structured.items() if key != "text"}
    blocks = [json.dumps(facts, ensure_ascii=False)] if text is None else [text, json.dumps(facts, ensure_ascii=False)]
    content: list[t.ContentBlock] = [t.TextContent(type="text", text=block) for block in blocks]
    return t.CallToolResult(content=content, structured_content=structured)


def check(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise InvalidRequest where the arguments do not fit the schema."""
    wrong = problems(schema, arguments)
    if wrong:
        raise InvalidRequest("the arguments are not valid: " + "; ".join(wrong))


def _chat_result(answer: Answer, telling: chat.Telling) -> t.CallToolResult:
    if answer.status is RunStatus.FAILED:
        said = f"{answer.error_code or 'internal'}: {answer.error or 'the run failed'}"
        return failure(said, {"run_id": answer.run_id, "session_id": answer.session_id})
    return success(chat.result(answer, telling), telling.text)


def _own_tools() -> list[t.Tool]:
    return [
        t.Tool(
            name=chat.CHAT,
            title="Chat with the local model",
            description=chat.DESCRIPTION,
            input_schema=chat.INPUT_SCHEMA,
            output_schema=chat.OUTPUT_SCHEMA,
            annotations=t.ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False),
        ),
        t.Tool(
            name=SESSION_GET,
            title="Show a conversation",
            description="A conversation that `chat` keeps, as JSON: its items, in order.",
            input_schema=_SESSION_INPUT,
            annotations=t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        ),
    ]


def _listed(exported: Exported) -> t.Tool:
    """A tool of the registry, as MCP lists it."""
    notes = exported.tool.annotations
    return t.Tool(
        name=exported.name,
        title=notes.title,
        description=exported.spec.description,
        input_schema={**exported.spec.parameters, "type": "object"},
        output_schema=exported.tool.output_schema,
        annotations=t.ToolAnnotations(
            read_only_hint=notes.read_only,
            destructive_hint=notes.destructive,
            idempotent_hint=notes.idempotent,
            open_world_hint=notes.open_world,
        ),
    )
