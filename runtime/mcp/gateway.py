"""The servers behind ours, as MCP clients see them: their tools, prompts and resources under names of their servers.

What a server's entry hides from a principal does not exist for it. A resource's URI is that of its server behind
`mcp://<server>/`, so it stays readable, and a template's parameters stay where they are. One of a scheme that the entry
claims stays as it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import mcp.types as t

from tenuto.errors import NotFound
from tenuto.runtime.mcp import uris
from tenuto.runtime.mcp.asked_first import NOTHING_ASKED, Answers, AskedFirst
from tenuto.runtime.mcp.paging import Source, whole
from tenuto.sessions.principal import Principal
from tenuto.tools.gateway import Gateway, scheme_of
from tenuto.tools.host.offers import ServerOffers
from tenuto.tools.names import exported_name
from tenuto.tools.registry import Exported, Registry

_URI = re.compile(r"mcp://([A-Za-z0-9_-]{1,64})/(.+)", re.DOTALL)


class Server(Protocol):
    """A server behind ours, as far as clients see it."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def gateway(self) -> Gateway:
        """What of it is shown, and to whom."""

    @property
    def offered(self) -> ServerOffers:
        """Its prompts and resources."""


class Behind:
    """All of them. Event-loop thread only. `own` are the names that no tool of theirs can have."""

    def __init__(self, servers: Sequence[Server], registry: Registry, own: Sequence[str]) -> None:
        self._servers = {server.name: server for server in servers}
        self._registry, self._own = registry, frozenset(own)
        self._by_scheme = {scheme: server for server in servers for scheme in server.gateway.schemes}

    # Tools.

    def tools(self, principal: Principal) -> dict[str, Exported]:
        """The tools of the registry that a principal sees, by the names that it sees."""
        shown: dict[str, Exported] = {}
        for tool in self._registry.list():
            if self._is_shown(principal, tool):
                wanted = self._renamed(tool)
                name = wanted if wanted not in shown and wanted not in self._own else tool.name
                shown[name] = tool
        return shown

    def tool(self, principal: Principal, name: str) -> Exported | None:
        """The tool that a principal calls so; also one whose server has gone away, so that the call tells it."""
        found = self.tools(principal).get(name)
        if found is None:
            known = self._registry.known(name)
            if known is not None and self._is_shown(principal, known) and self._renamed(known) == name:
                found = known
        return found

    def readable(self, tool: Exported, result: t.CallToolResult) -> t.CallToolResult:
        """A result with links to its server's resources as clients can follow them."""
        server = self._servers.get(tool.server)
        if server is None or not server.offered.listed.has_resources:
            return result
        return result.model_copy(update={"content": [linked(server, block) for block in result.content]})

    def _is_shown(self, principal: Principal, tool: Exported) -> bool:
        server = self._servers.get(tool.server)
        return server is None or server.gateway.shows(principal.id, "tools", tool.tool.spec.name)

    def _renamed(self, tool: Exported) -> str:
        server = self._servers.get(tool.server)
        return tool.name if server is None else server.gateway.names.get(tool.tool.spec.name, tool.name)

    # Prompts.

    def prompts(self, principal: Principal, taken: Sequence[str]) -> Source[t.Prompt]:
        """The prompts that a principal sees; `taken` are names of others."""
        return whole(
            "behind",
            [
                prompt.model_copy(update={"name": name, "meta": None})
                for name, (_, prompt) in self._prompts(principal, taken).items()
            ],
        )

    async def get_prompt(
        self,
        principal: Principal,
        name: str,
        arguments: Mapping[str, str],
        taken: Sequence[str],
        answers: Answers = NOTHING_ASKED,
    ) -> t.GetPromptResult | AskedFirst:
        """One of them, or what its server asks first.

        Raises NotFound, InvalidRequest, ServerUnreachable, ToolFailed.
        """
        server, prompt = self._prompt(principal, name, taken)
        found = await server.offered.get_or_asked(prompt.name, dict(arguments), answers.responses, answers.state)
        if isinstance(found, t.InputRequiredResult):
            return AskedFirst(server.name, found)
        messages = [
            message.model_copy(update={"content": linked(server, message.content)}) for message in found.messages
        ]
        return t.GetPromptResult(description=found.description, messages=messages)

    def _prompts(self, principal: Principal, taken: Sequence[str]) -> dict[str, tuple[Server, t.Prompt]]:
        shown: dict[str, tuple[Server, t.Prompt]] = {}
        for server in self._servers.values():
            for prompt in server.offered.listed.prompts:
                if server.gateway.shows(principal.id, "prompts", prompt.name):
                    usual = exported_name(server.name, prompt.name)
                    wanted = server.gateway.names.get(prompt.name, usual)
                    shown.setdefault(usual if wanted in taken or wanted in shown else wanted, (server, prompt))
        return shown

    def _prompt(self, principal: Principal, name: str, taken: Sequence[str]) -> tuple[Server, t.Prompt]:
        found = self._prompts(principal, taken)
        if name not in found:
            raise NotFound("prompt", name[:100], [*taken, *found])
        return found[name]

    # Resources.

    def resources(self, principal: Principal) -> Source[t.Resource]:
        """The resources that they list and a principal sees."""
        return whole(
            "behind",
            [
                each.model_copy(update={"uri": uri_of(server, each.uri), "meta": None})
                for server in self._servers.values()
                for each in server.offered.listed.resources
                if server.gateway.shows(principal.id, "resources", each.uri)
            ],
        )

    def templates(self, principal: Principal) -> list[t.ResourceTemplate]:
        """The forms of their resources."""
        return [
            each.model_copy(update={"uri_template": uri_of(server, each.uri_template), "meta": None})
            for server in self._servers.values()
            for each in server.offered.listed.templates
            if server.gateway.shows(principal.id, "resources", each.uri_template)
        ]

    def is_theirs(self, uri: str) -> bool:
        """Whether a URI, or a form of URIs, is that of a resource of theirs."""
        return scheme_of(uri) in self._by_scheme or _URI.fullmatch(uri) is not None

    async def read(self, principal: Principal, uri: str) -> t.ReadResourceResult:
        """One of their resources, listed or not: templates have many more.

        Raises:
            MCPError: there is none, or it is hidden from this principal.
            ServerUnreachable, ToolFailed: its server is not there, or did not answer.
        """
        server, own = self._named(principal, uri)
        try:
            found = await server.offered.read(own)
        except NotFound:
            raise uris.no_resource(uri) from None
        contents = [each.model_copy(update={"uri": uri_of(server, each.uri)}) for each in found.contents]
        return t.ReadResourceResult(contents=contents)

    async def watch(
        self, principal: Principal, uri: str, tell: Callable[[str], None], lost: Callable[[], None]
    ) -> Callable[[], None]:
        """Hear of changes of one of their resources; what ends that. Returns once its server has taken it.

        `tell` is given the URI, or that of a resource below it, as the principal sees them. `lost` is called where that
        ends of itself: others wanted to hear of something, too, and held less. Neither may block.

        Raises:
            MCPError: there is no such resource, or it is hidden from this principal.
            InvalidRequest: its server does not tell of it.
            Overloaded, ServerUnreachable, ToolFailed: others hold all places, or its server is not there or failed.
        """
        server, own = self._named(principal, uri)

        def heard(changed: str) -> None:
            if server.gateway.shows(principal.id, "resources", changed):
                tell(uri + changed.removeprefix(own))

        try:
            return await server.offered.subscriptions.watch(principal.id, own, heard, lost)
        except NotFound:
            raise uris.no_resource(uri) from None

    def _named(self, principal: Principal, uri: str) -> tuple[Server, str]:
        server, own = self._by_scheme.get(scheme_of(uri)), uri
        if server is None and (parts := _URI.fullmatch(uri)) is not None:
            server, own = self._servers.get(parts[1]), parts[2]
        if server is None or not server.gateway.shows(principal.id, "resources", own):
            raise uris.no_resource(uri)
        return server, own

    # Completion.

    def completes(self, reference: t.PromptReference | t.ResourceTemplateReference, taken: Sequence[str]) -> bool:
        """Whether it is for one of them to complete; `taken` are the names of our own prompts."""
        match reference:
            case t.PromptReference(name=name):
                return name not in taken
            case t.ResourceTemplateReference(uri=uri):
                return self.is_theirs(uri) or scheme_of(uri) == "mcp"

    async def complete(
        self, principal: Principal, params: t.CompleteRequestParams, taken: Sequence[str]
    ) -> t.CompleteResult:
        """How an argument of theirs can go on. Raises NotFound, MCPError, InvalidRequest, ToolFailed."""
        argument = {"name": params.argument.name, "value": params.argument.value}
        known = None if params.context is None else params.context.arguments
        match params.ref:
            case t.PromptReference(name=name):
                server, prompt = self._prompt(principal, name, taken)
                reference: t.PromptReference | t.ResourceTemplateReference = t.PromptReference(name=prompt.name)
            case t.ResourceTemplateReference(uri=uri):
                server, own = self._named(principal, uri)
                reference = t.ResourceTemplateReference(uri=own)
        return await server.offered.complete(reference, argument, known)


def uri_of(server: Server, uri: str) -> str:
    """The URI under which clients read a resource of a server."""
    return uri if scheme_of(uri) in server.gateway.schemes else f"mcp://{server.name}/{uri}"


def linked(server: Server, block: t.ContentBlock) -> t.ContentBlock:
    """Content of a server with its links as clients can follow them; what lies on the web stays there."""
    match block:
        case t.ResourceLink() if not block.uri.startswith(("http://", "https://")):
            return block.model_copy(update={"uri": uri_of(server, block.uri)})
        case t.EmbeddedResource(resource=resource) if not resource.uri.startswith(("http://", "https://")):
            shown = resource.model_copy(update={"uri": uri_of(server, resource.uri)})
            return block.model_copy(update={"resource": shown})
        case _:
            return block
