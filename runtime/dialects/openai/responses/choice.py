"""How the tools of a response may be used: `tool_choice` in all its forms. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.dialects.openai.responses.callables import model_name
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.dialects.openai.responses.wire import ChosenTool, ToolChoiceBody
from tenuto.runtime.loop.requests import LeftOut


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether to call, the one name that it must be, and the names that it may be."""

    choice: ToolChoice = ToolChoice.AUTO
    only: str | None = None
    allowed: tuple[str, ...] | None = None


def read_choice(wire: ToolChoiceBody | None, listed: Listed, left_out: list[LeftOut]) -> Choice:
    """What `tool_choice` says. A tool that is not here cannot be chosen, which is left out.

    Raises:
        InvalidRequest: it names nothing.
    """
    if wire is None:
        return Choice()
    match wire.type:
        case "none" | "auto" | "required":
            return Choice(ToolChoice(wire.type))
        case "function" | "custom":
            return Choice(ToolChoice.REQUIRED, only=_name(wire, "tool_choice"))
        case "mcp":
            names = _of_server(wire, listed, "tool_choice")
            return Choice(ToolChoice.REQUIRED, allowed=tuple(names))
        case "allowed_tools":
            return _among(wire, listed, left_out)
        case other:
            left_out.append(LeftOut("tool_choice", f"there are no tools of type {other!r} here"))
            return Choice()


def _among(wire: ToolChoiceBody, listed: Listed, left_out: list[LeftOut]) -> Choice:
    if wire.mode is None or wire.tools is None:
        missing = "tool_choice.mode" if wire.mode is None else "tool_choice.tools"
        raise InvalidRequest(f"{missing}: field required", missing)
    names: list[str] = []
    for index, tool in enumerate(wire.tools):
        path = f"tool_choice.tools[{index}]"
        match tool.type:
            case "function" | "custom":
                names.append(_name(tool, path))
            case "mcp":
                names += _of_server(tool, listed, path)
            case other:
                left_out.append(LeftOut(path, f"there are no tools of type {other!r} here"))
    if not names:
        return Choice(ToolChoice.NONE)
    return Choice(ToolChoice(wire.mode), allowed=tuple(dict.fromkeys(names)))


def _name(tool: ChosenTool, path: str) -> str:
    if tool.name is None:
        raise InvalidRequest(f"{path}.name: field required", f"{path}.name")
    return model_name(tool.name, tool.namespace)


def _of_server(tool: ChosenTool, listed: Listed, path: str) -> Sequence[str]:
    if tool.server_label is None:
        raise InvalidRequest(f"{path}.server_label: field required", f"{path}.server_label")
    own = listed.get(tool.server_label, ())
    names = [one.name for one in own if tool.name in (None, one.name, one.tool.spec.name)]
    if not names:
        what = f"no tool {tool.name!r} of the server" if own and tool.name else "no MCP server"
        raise InvalidRequest(f"{path}: there is {what} {tool.server_label!r}", path)
    return names
