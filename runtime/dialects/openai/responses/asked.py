"""What of a request for a response its response shows and is told by. It is kept with the response, so that the
response is the same whenever it is read. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tenuto.runtime.dialects.mcp_servers import shown_url
from tenuto.runtime.dialects.openai.responses.callables import ClientTool
from tenuto.runtime.dialects.openai.responses.shapes import McpTool
from tenuto.runtime.dialects.openai.responses.tools import Listed, Tools
from tenuto.sessions.items import JsonObject
from tenuto.tools.names import SEPARATOR
from tenuto.tools.registry import Exported

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "text",
    "tool_choice",
    "tools",
    "truncation",
    "user",
)
"""The fields that come back with the response as they came."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """A server's tools as the client is told them."""

    label: str
    tools: tuple[McpTool, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked.

    `callables` are the client's tools by the names that the model knows. `lists` are told before the answer. `renamed`
    has server and name of such tools of the request's own servers as do not show them by the model's name.
    `holds_calls`: a round may need a person's word before the client may know of its calls. `approved` is the approval
    request that is answered. `conversation` is the id of the one that was named. `temperature` and
    `top_p` None: the model's own.
    """

    echo: JsonObject
    callables: Mapping[str, ClientTool]
    lists: tuple[ToolList, ...] = ()
    renamed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    holds_calls: bool = False
    approved: str | None = None
    conversation: str | None = None
    background: bool = False
    is_flex: bool = False
    """Whether it may wait, as its service tier or its priority says."""
    parallel: bool = True
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int = 0

    def to_json(self) -> JsonObject:
        """The stored form."""
        dumped: JsonObject = _ASKED.dump_python(self, mode="json", exclude_defaults=True)
        return dumped

    @staticmethod
    def is_in(value: JsonObject) -> bool:
        """Whether what was kept of a request is of one for a response: other front ends keep answers too."""
        return "echo" in value

    @staticmethod
    def of_json(value: JsonObject) -> "Asked":
        """Read the stored form. Raises ValueError where another version has kept it in a form of its own."""
        return _ASKED.validate_python(value)


_ASKED: TypeAdapter[Asked] = TypeAdapter(Asked)


def echo(body: Mapping[str, Any]) -> JsonObject:
    """What of a request's body comes back. It is kept, so that no secret may be in it."""
    echoed = {name: body[name] for name in _ECHOED if body.get(name) is not None}
    if isinstance(tools := echoed.get("tools"), list):
        echoed["tools"] = [without_secrets(tool) for tool in tools]
    return echoed


def without_secrets(tool: Any) -> Any:
    """A tool without what its server is told in confidence."""
    if not isinstance(tool, dict) or tool.get("type") != "mcp":
        return tool
    shown = {name: value for name, value in tool.items() if name not in ("headers", "authorization")}
    if isinstance(url := shown.get("server_url"), str):
        shown["server_url"] = shown_url(url)
    return shown


def renamed(listed: Listed) -> dict[str, tuple[str, str]]:
    """The tools of which the model's name does not show the server and the server's own name."""
    return {
        one.name: (one.server, one.tool.spec.name)
        for own in listed.values()
        for one in own
        if one.name != f"{one.server}{SEPARATOR}{one.tool.spec.name}"
    }


def tool_lists(tools: Tools, known: Collection[str], listed: Listed) -> tuple[ToolList, ...]:
    """The tools of the request's servers that the model may see, but for the servers whose lists the client has."""
    return tuple(
        ToolList(label, tuple(_described(one) for one in listed.get(label, ()) if _is_allowed(one, allowed)))
        for label, allowed in tools.servers.items()
        if label not in known
    )


def _is_allowed(one: Exported, allowed: Sequence[str] | None) -> bool:
    return allowed is None or one.name in allowed or one.tool.spec.name in allowed


def _described(exported: Exported) -> McpTool:
    spec, hints = exported.tool.spec, exported.tool.annotations
    annotations = {"readOnlyHint": hints.read_only, "idempotentHint": hints.idempotent}
    return McpTool(name=spec.name, description=spec.description, input_schema=spec.parameters, annotations=annotations)
