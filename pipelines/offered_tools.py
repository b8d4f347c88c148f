"""Tools as a chat template takes them: as Hugging Face gives them, or with what some templates need beside. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tenuto.pipelines.message_fields import tool_fields
from tenuto.pipelines.placeholders import PlaceholderTable, to_json
from tenuto.sessions.items import ToolSpec


@dataclass(frozen=True, slots=True)
class Offer:
    """How tools are given to a template."""

    as_list: bool = False
    """No tools are an empty list: Hugging Face gives None, and some templates loop over them all the same."""
    as_text: bool = False
    """`functions` is their JSON as text, and `datetime` a date: templates of the time before `tools` have both."""
    described: bool = False
    """Each parameter has a description, be it empty."""

    def variables(self, table: PlaceholderTable, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """What the template is rendered with."""
        given = [tool_fields(_described(tool) if self.described else tool, table) for tool in tools]
        found: dict[str, Any] = {"tools": given or ([] if self.as_list else None)}
        if self.as_text:
            functions = to_json([tool_fields(tool)["function"] for tool in tools], indent=2)
            today = datetime.now(UTC).strftime("%b %d %Y")
            found |= {"functions": table.placeholder(functions, None), "datetime": today}
        return found


def taken(takes: Callable[[Offer, Sequence[ToolSpec]], bool], tools: Sequence[ToolSpec]) -> Offer:
    """The first way in which a template takes a conversation without tools, and one with these."""
    ways = (Offer(), Offer(as_list=True), Offer(as_list=True, as_text=True))
    offer = next((way for way in ways if takes(way, ())), Offer())
    described = replace(offer, described=True)
    return described if not takes(offer, tools) and takes(described, tools) else offer


def _described(tool: ToolSpec) -> ToolSpec:
    members = tool.parameters.get("properties")
    if not isinstance(members, dict):
        return tool
    all_described = {
        key: {"description": "", **schema} if isinstance(schema, dict) else schema for key, schema in members.items()
    }
    return replace(tool, parameters={**tool.parameters, "properties": all_described})
