"""Parts of messages that name what an MCP server has, alike in every front end: a resource, or a prompt.

{"type": "mcp_resource", "server": "notes", "uri": "memo://a"}
{"type": "mcp_prompt", "server": "notes", "name": "greet", "arguments": {"who": "Ann"}}
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field

from tenuto.errors import InvalidRequest
from tenuto.runtime.http.body import Wire, at_most
from tenuto.sessions.items import McpPrompt, McpResource, UserItem

TYPES = ("mcp_resource", "mcp_prompt")
MOST_ARGUMENTS = 64
_GATEWAY_URI = re.compile(r"mcp://([A-Za-z0-9_-]{1,64})/(.+)", re.DOTALL)

Server = Annotated[str, Field(min_length=1, max_length=64)]
Uri = Annotated[str, Field(min_length=1, max_length=4096)]
PromptName = Annotated[str, Field(min_length=1, max_length=256)]
Arguments = Annotated[dict[str, str], Field(max_length=MOST_ARGUMENTS), at_most(MOST_ARGUMENTS)]


class McpFields(Wire):
    """What such a part says. What may stand where is told where its place is known."""

    server: Server | None = None
    uri: Uri | None = None
    name: PromptName | None = None
    arguments: Arguments | None = None


class McpPart(McpFields):
    """A part that is nothing else."""

    type: Literal["mcp_resource", "mcp_prompt"]


class _Part(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def server(self) -> str | None: ...
    @property
    def uri(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def arguments(self) -> dict[str, str] | None: ...


P = TypeVar("P", bound=_Part)


def divided(parts: Iterable[tuple[P, str]]) -> Iterator[UserItem | list[tuple[P, str]]]:
    """What a message says with its places, in order: items for what it names, and what stands between those.

    Raises:
        InvalidRequest: a part names nothing.
    """
    between: list[tuple[P, str]] = []
    is_empty = True
    for part, place in parts:
        if part.type not in TYPES:
            between.append((part, place))
            continue
        if between:
            yield between
            between = []
        yield named_item(part, place)
        is_empty = False
    if between or is_empty:
        yield between


def named_item(fields: _Part, path: str) -> UserItem:
    """What a part of one of the TYPES names. Raises InvalidRequest.

    The server may be left out where the URI is the one that MCP clients of ours know: `mcp://SERVER/URI`.
    """
    if fields.type == "mcp_prompt":
        server, name = _given(fields.server, f"{path}.server"), _given(fields.name, f"{path}.name")
        return UserItem("", source=McpPrompt(server, name, fields.arguments or {}))
    uri = _given(fields.uri, f"{path}.uri")
    if fields.server is not None:
        return UserItem("", source=McpResource(fields.server, uri))
    parts = _GATEWAY_URI.fullmatch(uri)
    if parts is None:
        raise InvalidRequest(f"{path}.server: field required, or a uri that begins with mcp://", f"{path}.server")
    return UserItem("", source=McpResource(parts[1], parts[2]))


def named_items(parts: Sequence[McpPart] | None, path: str) -> list[UserItem]:
    """What such parts name that stand in a list of their own. Raises InvalidRequest."""
    return [named_item(part, f"{path}[{index}]") for index, part in enumerate(parts or ())]


def _given(value: str | None, path: str) -> str:
    if value is None:
        raise InvalidRequest(f"{path}: field required", path)
    return value
