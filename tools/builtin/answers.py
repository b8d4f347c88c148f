"""How a built-in states its tools and answers a call."""

from tenuto.sessions.items import ToolSpec
from tenuto.tools.spec import Annotations, Tool, ToolResult

READ_ONLY = Annotations(read_only=True, idempotent=True, destructive=False, open_world=False)


def tool(name: str, description: str, fields: tuple[str, ...], annotations: Annotations = READ_ONLY) -> Tool:
    """A tool whose arguments are all strings and all required."""
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return Tool(ToolSpec(name, description, parameters), annotations)


def failure(message: str) -> ToolResult:
    """A failure that the model reads."""
    return ToolResult(f"Error: {message}", is_error=True)


def no_such_tool(server: str, name: str, tools: list[Tool]) -> ToolResult:
    """The answer to a name that the built-in does not have."""
    return failure(f"{server} has no tool {name!r}; it has {', '.join(each.spec.name for each in tools)}")
