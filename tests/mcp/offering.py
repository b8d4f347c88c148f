"""An MCP server on stdio with prompts, resources and a template, which change when its tool is called."""

import sys
from typing import Any

import anyio
import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged
from mcp.shared.exceptions import MCPError

BUS = InMemorySubscriptionBus()
LEGACY = "legacy" in sys.argv
changed = False


async def list_tools(context: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name=name, input_schema={"type": "object"}) for name in ("change", "quiet")])


async def call_tool(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    global changed
    changed = True
    await BUS.publish(PromptsListChanged())
    link = t.ResourceLink(type="resource_link", name="a", uri="memo://a")
    return t.CallToolResult(content=[t.TextContent(type="text", text="changed"), link])


async def list_prompts(context: Any, params: t.PaginatedRequestParams | None) -> t.ListPromptsResult:
    if params is None or params.cursor is None:
        arguments = [t.PromptArgument(name="who", required=True)]
        return t.ListPromptsResult(prompts=[t.Prompt(name="greet", arguments=arguments)], next_cursor="2")
    names = ["hidden", *(["later"] if changed else [])]
    return t.ListPromptsResult(prompts=[t.Prompt(name=name) for name in names])


async def get_prompt(context: Any, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    who = (params.arguments or {}).get("who")
    if who is None:
        raise MCPError(code=t.INVALID_PARAMS, message="who is missing")
    memo = t.TextResourceContents(uri="memo://a", mime_type="text/plain", text="a memo")
    return t.GetPromptResult(
        messages=[
            t.PromptMessage(role="user", content=t.TextContent(type="text", text=f"Greet {who}")),
            t.PromptMessage(role="user", content=t.EmbeddedResource(type="resource", resource=memo)),
        ]
    )


async def list_resources(context: Any, params: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(
        resources=[t.Resource(name=name, uri=f"memo://{name}", mime_type="text/plain") for name in ("a", "secret")]
    )


async def list_templates(context: Any, params: Any) -> t.ListResourceTemplatesResult:
    template = t.ResourceTemplate(name="memo", uri_template="memo://{name}")
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Any, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    uri = str(params.uri)
    if uri == "memo://slow":
        await anyio.sleep_forever()
    if uri not in ("memo://a", "memo://secret", "memo://b"):
        raise MCPError(code=t.INVALID_PARAMS, message=f"no {uri}", data={"uri": uri})
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, text=f"the text of {uri}")])


async def complete(context: Any, params: t.CompleteRequestParams) -> t.CompleteResult:
    return t.CompleteResult(completion=t.Completion(values=[f"{params.argument.value}-{type(params.ref).__name__}"]))


async def main() -> None:
    server: Server[Any] = Server(
        "offering",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_completion=complete,
        on_subscriptions_listen=ListenHandler(BUS),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(NotificationOptions(True, True, True)))


if __name__ == "__main__":
    anyio.run(main)
