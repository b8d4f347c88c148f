"""An MCP server on stdio, of the newer protocol, that asks something before it fills a prompt or reads a resource."""

from typing import Any

import anyio
import mcp.types as t
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = t.ElicitRequest(params=t.ElicitRequestFormParams(message="Who?", requested_schema=SCHEMA))
QUESTION = t.CreateMessageRequestParams(messages=[], max_tokens=5)
FIRST: dict[str, t.InputRequest] = {"person": FORM, "model": t.CreateMessageRequest(params=QUESTION)}


async def list_prompts(context: Any, params: Any) -> t.ListPromptsResult:
    return t.ListPromptsResult(prompts=[t.Prompt(name=name) for name in FIRST])


async def get_prompt(context: Any, params: t.GetPromptRequestParams) -> t.GetPromptResult | t.InputRequiredResult:
    said = (params.input_responses or {}).get("first")
    if not isinstance(said, t.ElicitResult) or params.request_state != "asked":
        return t.InputRequiredResult(input_requests={"first": FIRST[params.name]}, request_state="asked")
    text = t.TextContent(type="text", text=f"{said.action} {said.content}")
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=text)])


async def list_resources(context: Any, params: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=[t.Resource(uri="memo://a", name="a")])


async def read_resource(context: Any, params: t.ReadResourceRequestParams) -> t.InputRequiredResult:
    return t.InputRequiredResult(input_requests={"first": FORM})


server: Server[Any] = Server(
    "prompting",
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(over_stdio)
