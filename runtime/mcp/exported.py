"""Tools of the registry and what they answer, as MCP clients get them: as their own servers describe and give them."""

import mcp.types as t

from tenuto.tools.registry import Exported
from tenuto.tools.spec import ToolResult

_PROTOCOLS_OWN = "io.modelcontextprotocol/"


def result(answered: ToolResult) -> t.CallToolResult:
    """A tool's result as its server gave it, but for what that said of itself."""
    if answered.whole is None:
        text = t.TextContent(type="text", text=answered.text)
        return t.CallToolResult(content=[text], structured_content=answered.structured, is_error=answered.is_error)
    meta = {key: value for key, value in (answered.whole.meta or {}).items() if not key.startswith(_PROTOCOLS_OWN)}
    return answered.whole.model_copy(update={"meta": meta or None})


def listed(name: str, tool: Exported) -> t.Tool:
    """A tool of the registry, as MCP lists it under a name."""
    notes = tool.tool.annotations
    return t.Tool(
        name=name,
        title=tool.tool.title,
        description=tool.spec.description,
        input_schema={**tool.spec.parameters, "type": "object"},
        output_schema=tool.tool.output_schema,
        icons=[t.Icon.model_validate(icon) for icon in tool.tool.icons] or None,
        meta=tool.tool.meta,
        annotations=t.ToolAnnotations(
            title=notes.title,
            read_only_hint=notes.read_only,
            destructive_hint=notes.destructive,
            idempotent_hint=notes.idempotent,
            open_world_hint=notes.open_world,
        ),
    )
