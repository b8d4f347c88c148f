"""How many tools a model may be shown, and how large: alike for those of a request and of an imported session. Pure."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json

from tenuto.errors import InvalidRequest
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.schemas import expect_bounded

MOST_TOOLS = 1_000
MOST_DESCRIPTION = 64 << 10
"""Characters that describe a tool."""
MOST_TOOL_BYTES = 2 << 20
"""Of all tools together."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
Description = Annotated[str, Field(max_length=MOST_DESCRIPTION)]


def expect_within(tools: Mapping[str, ToolSpec], schema: str = "parameters") -> None:
    """Hold tools, by their places in what was sent, to what one of them alone does not tell. `schema` is the field that
    has one's parameters.

    Raises:
        InvalidRequest: two have one name, a schema is too large, or all together are.
    """
    names: set[str] = set()
    size = 0
    for place, tool in tools.items():
        if tool.name in names:
            raise InvalidRequest(f"{place}.name: there are two tools named {tool.name!r}", f"{place}.name")
        names.add(tool.name)
        expect_bounded(tool.parameters, f"{place}.{schema}")
        size += len(tool.description) + len(to_json(tool.parameters))
        if size > MOST_TOOL_BYTES:
            raise InvalidRequest(f"tools: descriptions and schemas take more than {MOST_TOOL_BYTES} bytes", "tools")
