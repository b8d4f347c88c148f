"""A server that asks people in the middle of calls, in the form of whichever era its client speaks."""

import os
from pathlib import Path
from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import UrlElicitationRequiredError

ANY: dict[str, Any] = {"type": "object"}
FORM: t.ElicitRequestedSchema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
        "secret": {"type": "string", "description": "A password."},
    },
    "required": ["name"],
}
TOOLS = ("form", "page", "again", "odd", "two", "die", "take_back", "log", "required")
LOG = Path("asker.log")


def text(value: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=value)])


def note(what: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{what}\n")


def so_far() -> str:
    return LOG.read_text()


def answered(result: Any) -> str:
    content = result.content or {}
    told = " ".join(f"{key}={content[key]}" for key in sorted(content) if key != "secret")
    return f"{result.action} {told}".strip()


async def list_tools(ctx: Any, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name=name, input_schema=ANY) for name in TOOLS])


def asked(name: str, number: int) -> t.ElicitRequestParams:
    match name:
        case "page":
            return t.ElicitRequestURLParams(message="Pay here.", url="https://pay.example/1", elicitation_id="e1")
        case "odd":
            schema: t.ElicitRequestedSchema = {"type": "object", "properties": {"a": {"type": "object"}}}
            return t.ElicitRequestFormParams(message="Odd?", requested_schema=schema)
        case _:
            return t.ElicitRequestFormParams(message=f"Who are you ({number})?", requested_schema=FORM)


async def ask(ctx: Any, params: t.ElicitRequestParams) -> Any:
    if isinstance(params, t.ElicitRequestURLParams):
        return await ctx.session.elicit_url(params.message, params.url, "e1", related_request_id=ctx.request_id)
    return await ctx.session.elicit_form(params.message, params.requested_schema, related_request_id=ctx.request_id)


async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
    note(f"called {params.name}")
    match params.name:
        case "log":
            return text(so_far())
        case "required" if so_far().count("called required") == 1:
            raise _sign_in()
        case "required":
            return text("signed in")
    try:
        return await _legacy(ctx, params.name) if ctx.session.can_send_request else _modern(params)
    except anyio.get_cancelled_exc_class():
        note(f"cancelled {params.name}")
        raise


def _sign_in() -> Exception:
    link = asked("page", 1)
    assert isinstance(link, t.ElicitRequestURLParams)
    return UrlElicitationRequiredError([link])


async def _legacy(ctx: Any, name: str) -> t.CallToolResult:
    rounds = {"two": 2, "again": 50}.get(name, 1)
    told = []
    for number in range(1, rounds + 1):
        if name == "die":
            async with anyio.create_task_group() as group:
                group.start_soon(ask, ctx, asked(name, number))
                await anyio.sleep(0.3)
                os._exit(3)
        if name == "take_back":
            with anyio.move_on_after(0.3):
                await ask(ctx, asked(name, number))
            return text("taken back")
        told.append(answered(await ask(ctx, asked(name, number))))
    return text("; ".join(told))


def _modern(params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
    rounds = {"two": 2, "again": 50}.get(params.name, 1)
    told = (params.request_state or "").split("|")[1:]
    reply = (params.input_responses or {}).get("who")
    if reply is not None:
        told.append(answered(reply))
    if len(told) == rounds:
        return text("; ".join(told))
    question = t.ElicitRequest(params=asked(params.name, len(told) + 1))
    return t.InputRequiredResult(input_requests={"who": question}, request_state="|".join(["state", *told]))


server: Server[Any] = Server("asker", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(over_stdio)
