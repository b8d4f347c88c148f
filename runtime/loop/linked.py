"""Resources that servers' tools have linked to: the model reads them with a tool that comes with the first link.

The tool block stays as it is for the whole session: the tool is told at the end of the result that links, and can be
called from then on. Whether it has been told is read from the session's items. It reads what a server has linked to in
this session and what it lists, at that server, and nothing else: no URI is the model's own.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenuto.errors import NotFound, ServerUnreachable, ToolFailed
from tenuto.sessions.items import Item, JsonObject, ToolResultItem, ToolSpec
from tenuto.tools.host.contents import Content, of_resource
from tenuto.tools.host.results import MAX_ATTACHMENT_CHARACTERS
from tenuto.tools.names import READ_RESOURCE
from tenuto.tools.offering import Offering
from tenuto.tools.registry import Registry
from tenuto.tools.spec import ToolResult

PAGE = 8_000
"""Characters of text that one call gives."""
_MOST_NAMED = 10
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "As it was linked"},
        "offset": {"type": "integer", "minimum": 0, "description": "The character to begin with, in a long text"},
        "server": {"type": "string", "description": "Only where several servers have that uri"},
    },
    "required": ["uri"],
}
READ = ToolSpec(READ_RESOURCE, "Read a resource that a tool has linked to, or that its server lists", _PARAMETERS)
_TOLD = "Linked resources can be read by calling: " + json.dumps(
    {"name": READ.name, "description": READ.description, "parameters": READ.parameters}
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call asks for: a resource of a server. `error`: why there is none, for the model."""

    server: str | None = None
    uri: str = ""
    error: str = ""
    is_linked: bool = False
    offset: int = 0


def is_told(items: Iterable[Item]) -> bool:
    """Whether the model has been told how to read links."""
    return any(_TOLD in item.text for item in items if isinstance(item, ToolResultItem) and _uris(item))


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a session's items. Event-loop thread only."""

    offering: Offering
    registry: Registry

    def telling(self, tool: str, result: ToolResult, items: Sequence[Item]) -> ToolResult:
        """A tool's result, with how to read its links where it is the session's first that can be read."""
        server = self._server_of(tool)
        links = any(one.uri is not None and one.data is None for one in result.attachments)
        if not links or not self.offering.has_resources(server) or is_told(items):
            return result
        return replace(result, text=f"{result.text}\n{_TOLD}")

    def asked(self, principal: str, arguments: Any, items: Sequence[Item]) -> Asked:
        """What a call's arguments ask for, of what may be read."""
        uri = arguments.get("uri") if isinstance(arguments, dict) else None
        if not isinstance(uri, str) or not uri:
            return Asked(error="uri: say which resource, as it was linked")
        offset, wanted = arguments.get("offset") or 0, arguments.get("server")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            return Asked(error="offset: must be a whole number from 0 on")
        linked = self._linked(items)
        linking = [server for server, known in linked if known == uri]
        listing = [server for server, each in self.offering.resources(principal) if each.uri == uri]
        having = [*dict.fromkeys((*linking, *listing))]
        if wanted is not None:
            having = [server for server in having if server == wanted]
        if not having:
            named = ", ".join(dict.fromkeys(known for _, known in linked[:_MOST_NAMED])) or "none"
            return Asked(error=f"no tool has linked to {uri[:200]!r}, and no server lists it; the links are: {named}")
        if len(having) > 1 and not linking:
            return Asked(error=f"server: several have that uri, so name one of {', '.join(having)}")
        return Asked(having[0], uri, "", having[0] in linking, offset)

    async def read(self, principal: str, asked: Asked) -> ToolResult:
        """Read it: a page of its text, and its images."""
        if asked.server is None:
            return ToolResult(f"Error: {asked.error}", is_error=True)
        # What its own server has linked to is the model's to read, whatever MCP clients are shown of that server.
        try:
            found = await self.offering.read(principal, asked.server, asked.uri, is_linked=asked.is_linked)
        except (NotFound, ServerUnreachable, ToolFailed) as error:
            return ToolResult(f"Error: {error}", is_error=True)
        return _result(of_resource(found), asked)

    def _linked(self, items: Sequence[Item]) -> list[tuple[str, str]]:
        """The links, the last first, with their servers."""
        return [
            (self._server_of(item.name), uri)
            for item in reversed(items)
            if isinstance(item, ToolResultItem) and item.server
            for uri in _uris(item)
        ]

    def _server_of(self, tool: str) -> str:
        found = self.registry.known(tool)
        return "" if found is None else found.server


def _uris(item: ToolResultItem) -> list[str]:
    return [one.uri for one in item.attachments if one.uri is not None and one.data is None]


def _result(content: Content, asked: Asked) -> ToolResult:
    text, offset = "\n".join(content.texts), asked.offset
    if offset and offset >= len(text):
        return ToolResult(f"Error: offset: the text has {len(text)} characters", is_error=True)
    if content.unread and not (content.texts or content.images):
        what = "; ".join(content.unread)
        return ToolResult(f"Error: {asked.uri} is {what}: text and images alone can be read", is_error=True)
    if content.image_characters > MAX_ATTACHMENT_CHARACTERS:
        return ToolResult(f"Error: {asked.uri} is a larger image than can be read", is_error=True)
    end = offset + PAGE
    said = [text[offset:end]] if text else []
    if end < len(text):
        said.append(f"[characters {offset} to {end} of {len(text)}; to go on, read it with offset {end}]")
    said += [f"[image: {image.mime_type}]" for image in content.images] if not offset else []
    said += [f"[{each}, not shown]" for each in content.unread]
    return ToolResult("\n".join(said) or "It is empty.", attachments=() if offset else content.images)
