"""What the configured MCP servers offer besides tools, as a principal sees it: prompts, resources and their templates.

What a server's entry hides from a principal does not exist for it, here as in the gateway.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import anyio
from mcp_types import (
    CompleteResult,
    GetPromptResult,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
)

from tenuto.errors import NotFound
from tenuto.tools.gate import Gate
from tenuto.tools.gateway import Gateway
from tenuto.tools.host.offers import ServerOffers

MOST_AT_ONCE = 8
"""Requests of one server at a time, whoever makes them."""
MOST_OF_ONE = 4
"""Those of one principal: whoever waits for a server that hangs leaves it to others as well."""
MOST_WAITING = 64
WAIT_S = 30.0
"""For a place among them; the server's own time comes after it."""

T = TypeVar("T")


class OfferingServer(Protocol):
    """A configured server, as far as it offers something."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def gateway(self) -> Gateway:
        """What of it is shown, and to whom."""

    @property
    def offered(self) -> ServerOffers:
        """Its prompts and resources."""


class Offering:
    """Event-loop thread only. Principals are told by their ids; prompts and URIs are the server's own."""

    def __init__(self, servers: Sequence[OfferingServer] = ()) -> None:
        self._servers = {server.name: server for server in servers}
        self._gates = {name: Gate(name, MOST_AT_ONCE, MOST_WAITING) for name in self._servers}
        self._shares: dict[tuple[str, str], Gate] = {}
        """Of principals, at a server, while they ask it for something."""

    def prompts(self, principal: str, server: str | None = None) -> list[tuple[str, Prompt]]:
        """The prompts of a server, or of all, with the names of their servers. Raises NotFound (the server)."""
        return [
            (one.name, prompt)
            for one in self._of(principal, server)
            for prompt in one.offered.listed.prompts
            if one.gateway.shows(principal, "prompts", prompt.name)
        ]

    def resources(self, principal: str, server: str | None = None) -> list[tuple[str, Resource]]:
        """The resources that a server lists, or all. Raises NotFound (the server)."""
        return [
            (one.name, resource)
            for one in self._of(principal, server)
            for resource in one.offered.listed.resources
            if one.gateway.shows(principal, "resources", resource.uri)
        ]

    def templates(self, principal: str, server: str | None = None) -> list[tuple[str, ResourceTemplate]]:
        """The forms of resources that a server does not list one by one. Raises NotFound (the server)."""
        return [
            (one.name, template)
            for one in self._of(principal, server)
            for template in one.offered.listed.templates
            if one.gateway.shows(principal, "resources", template.uri_template)
        ]

    def has_resources(self, server: str) -> bool:
        """Whether a server says that resources can be read of it."""
        return server in self._servers and self._servers[server].offered.listed.has_resources

    async def read(self, principal: str, server: str, uri: str, *, is_linked: bool = False) -> ReadResourceResult:
        """A resource, listed or not: templates have many more. `is_linked`: whatever the gateway shows to anybody.

        Raises NotFound, ServerUnreachable, ToolFailed.
        """
        one = self._server(None if is_linked else principal, server)
        if not is_linked and not one.gateway.shows(principal, "resources", uri):
            raise NotFound("resource", uri[:200])
        return await self._let_in(principal, server, lambda: one.offered.read(uri))

    async def prompt(self, principal: str, server: str, name: str, arguments: dict[str, str]) -> GetPromptResult:
        """A prompt with its arguments. Raises NotFound, InvalidRequest, ServerUnreachable, ToolFailed."""
        one = self._server(principal, server)
        self._expect_prompt(principal, one, name)
        return await self._let_in(principal, server, lambda: one.offered.get(name, arguments))

    async def complete(
        self,
        principal: str,
        server: str,
        reference: PromptReference | ResourceTemplateReference,
        argument: dict[str, str],
        known: dict[str, str] | None,
    ) -> CompleteResult:
        """How an argument can go on. Raises as `prompt` does."""
        one = self._server(principal, server)
        match reference:
            case PromptReference(name=name):
                self._expect_prompt(principal, one, name)
            case ResourceTemplateReference(uri=uri):
                if not one.gateway.shows(principal, "resources", uri):
                    raise NotFound("resource template", uri[:200])
        return await self._let_in(principal, server, lambda: one.offered.complete(reference, argument, known))

    def _expect_prompt(self, principal: str, server: OfferingServer, name: str) -> None:
        known = [prompt.name for _, prompt in self.prompts(principal, server.name)]
        if name not in known:
            raise NotFound("prompt", name[:100], known)

    def _of(self, principal: str, server: str | None) -> Sequence[OfferingServer]:
        if server is not None:
            return [self._server(principal, server)]
        return [one for one in self._servers.values() if one.gateway.admits(principal)]

    def _server(self, principal: str | None, name: str) -> OfferingServer:
        found = self._servers.get(name)
        if found is None or not (principal is None or found.gateway.admits(principal)):
            known = [] if principal is None else [one.name for one in self._of(principal, None)]
            raise NotFound("MCP server", name[:100], known)
        return found

    async def _let_in(self, principal: str, server: str, ask: Callable[[], Awaitable[T]]) -> T:
        deadline = anyio.current_time() + WAIT_S
        async with self._share(principal, server, deadline), self._gates[server].enter(deadline):
            return await ask()

    @asynccontextmanager
    async def _share(self, principal: str, server: str, deadline: float) -> AsyncIterator[None]:
        gate = self._shares.setdefault((principal, server), Gate(server, MOST_OF_ONE, MOST_WAITING))
        try:
            async with gate.enter(deadline):
                yield
        finally:
            if gate.is_idle:
                self._shares.pop((principal, server), None)
