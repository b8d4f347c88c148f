"""The suite's fixture: tools that answer at once, report, or tell the client that something has changed."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp.types as t
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

Result = t.CallToolResult | t.InputRequiredResult
Handler = Callable[[Any, t.CallToolRequestParams], Awaitable[Result]]

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
STRING = {"type": "string"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
_RIFF = b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0"
WAV = base64.b64encode(_RIFF).decode()
REPORTED_S = 0.05
"""Between two reports of one call."""

BUS = InMemorySubscriptionBus()
TOOLS: dict[str, tuple[t.Tool, Handler]] = {}


def tool(name: str, schema: dict[str, Any] = NOTHING) -> Callable[[Handler], Handler]:
    """Let the fixture have a tool of this name."""

    def add(handler: Handler) -> Handler:
        TOOLS[name] = t.Tool(name=name, description=f"What the suite calls {name}.", input_schema=schema), handler
        return handler

    return add


def text(said: str) -> t.TextContent:
    """A text, as content."""
    return t.TextContent(type="text", text=said)


def result(*content: t.ContentBlock) -> t.CallToolResult:
    """A result with this content."""
    return t.CallToolResult(content=list(content))


def embedded(uri: str, mime_type: str, said: str) -> t.EmbeddedResource:
    """A text resource, as content."""
    return t.EmbeddedResource(type="resource", resource=t.TextResourceContents(uri=uri, mime_type=mime_type, text=said))


IMAGE = t.ImageContent(type="image", data=PNG, mime_type="image/png")
ANSWERS: dict[str, list[t.ContentBlock]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [t.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}


async def _answer(_context: Any, params: t.CallToolRequestParams) -> Result:
    return result(*ANSWERS[params.name])


for name in ANSWERS:
    tool(name)(_answer)


@tool("test_error_handling")
async def fail(_context: Any, _params: t.CallToolRequestParams) -> Result:
    return t.CallToolResult(content=[text("This tool intentionally returns an error for testing")], is_error=True)


@tool("test_tool_with_logging")
@tool("test_logging_tool")
async def log(context: Any, _params: t.CallToolRequestParams) -> Result:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message(level="info", data=said, related_request_id=context.request_id)
        await anyio.sleep(REPORTED_S)
    return result(text("done"))


@tool("test_tool_with_progress")
async def progress(context: Any, _params: t.CallToolRequestParams) -> Result:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"step {done}")
        await anyio.sleep(REPORTED_S)
    return result(text("done"))


@tool("test_trigger_tool_change")
async def change_tools(_context: Any, _params: t.CallToolRequestParams) -> Result:
    await BUS.publish(ToolsListChanged())
    return result(text("told"))


@tool("test_trigger_prompt_change")
async def change_prompts(_context: Any, _params: t.CallToolRequestParams) -> Result:
    await BUS.publish(PromptsListChanged())
    return result(text("told"))


@tool("test_reconnection")
async def reconnect(context: Any, _params: t.CallToolRequestParams) -> Result:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await anyio.sleep(4 * REPORTED_S)
    return result(text("done"))


@tool("test_missing_capability")
async def need_sampling(context: Any, _params: t.CallToolRequestParams) -> Result:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=t.MISSING_REQUIRED_CLIENT_CAPABILITY, message="it needs sampling", data=needed)
    return result(text("done"))


@tool("test_x_mcp_header", {"type": "object", "properties": {"region": {**STRING, "x-mcp-header": "Region"}}})
@tool(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": STRING, "city": STRING},
            }
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {**STRING, "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def echo(_context: Any, params: t.CallToolRequestParams) -> Result:
    return result(text(str(params.arguments)))
