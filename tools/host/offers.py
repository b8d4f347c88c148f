"""What an MCP server offers besides tools: prompts, resources and templates, listed anew as they change, and read.

A server that fails here keeps its tools: each listing and each request has a bound of its own.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio
from mcp import MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import (
    METHOD_NOT_FOUND,
    CompleteResult,
    GetPromptResult,
    InputRequiredResult,
    InputResponses,
    Prompt,
    PromptListChangedNotification,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceListChangedNotification,
    ResourceTemplate,
    ResourceTemplateReference,
)
from pydantic import BaseModel, ValidationError

from tenuto.errors import NotFound, ToolFailed
from tenuto.tools.host.answers import MOST_URI_CHARACTERS, answering
from tenuto.tools.host.connection import Connection
from tenuto.tools.host.results import shortened
from tenuto.tools.host.subscriptions import Subscriptions

MOST = 1000
"""Prompts of a server, and as many resources and templates."""
MOST_PAGES = 50
MOST_BYTES = 4 << 20
"""Of the JSON text of one listing."""
MOST_INSTRUCTIONS = 4_000
"""Characters; what goes beyond them is cut."""
_AGAIN_S = 5.0
_CHANGES_APART_S = 0.2

logger = logging.getLogger(__name__)

T = TypeVar("T")
Entry = TypeVar("Entry", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Offers:
    """What a server has listed last."""

    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    has_resources: bool = False


class ServerOffers:
    """The offers of one server, over all its connections. Event-loop thread only.

    `connected` gives the live connection and raises ServerUnreachable; `hidden` takes secrets out of a text;
    `on_change` is called whenever there are other offers.
    """

    def __init__(
        self,
        name: str,
        timeout_s: float,
        connected: Callable[[], Awaitable[Connection]],
        hidden: Callable[[str], str],
        on_change: Callable[[], None],
    ) -> None:
        self._name, self._timeout_s = name, timeout_s
        self._connected, self._hidden, self._on_change = connected, hidden, on_change
        self._changed = anyio.Event()
        self.subscriptions = Subscriptions(name, timeout_s, connected, hidden)
        self.listed = Offers()
        self.instructions = ""
        """What it says of how its tools are used, to the model."""

    def meet(self, connection: Connection) -> None:
        """A connection has been made."""
        told = self._hidden((connection.client.instructions or "").strip())
        self.instructions = shortened(told, MOST_INSTRUCTIONS)

    def forget(self) -> None:
        """The server could not be started: nothing of it can be had."""
        self.listed = Offers()

    async def follow(self, connection: Connection) -> None:
        """List what there is, and again after each change, for as long as the connection lasts."""
        capabilities = connection.client.server_capabilities
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.subscriptions.follow, connection)
            if capabilities.prompts is None and capabilities.resources is None:
                self.listed = Offers()
                return
            connection.watchers.append(self._hear)
            tasks.start_soon(self._listen, connection)
            while True:
                self._changed = anyio.Event()
                await self._list(connection)
                await self._changed.wait()
                await anyio.sleep(_CHANGES_APART_S)

    async def read(self, uri: str) -> ReadResourceResult:
        """Read a resource of the server's own name. Raises NotFound, ServerUnreachable, ToolFailed."""
        if len(uri) > MOST_URI_CHARACTERS:
            raise NotFound("resource", uri[:200])
        missing = NotFound("resource", uri[:200])
        # Not by the client itself: what it asks in its callbacks would be taken for a question of a call under way.
        found = await self._ask(lambda it: it.client.session.read_resource(uri, allow_input_required=True), missing)
        if isinstance(found, InputRequiredResult):
            raise self._asks_first()
        return found

    async def get(self, name: str, arguments: dict[str, str]) -> GetPromptResult:
        """Fill a prompt. Raises InvalidRequest, ServerUnreachable, ToolFailed (also where it asks something first)."""
        found = await self.get_or_asked(name, arguments)
        if isinstance(found, InputRequiredResult):
            raise self._asks_first()
        return found

    async def get_or_asked(
        self, name: str, arguments: dict[str, str], responses: InputResponses | None = None, state: str | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """Fill a prompt, or what is asked first; then it is to be filled again with the responses and the state."""
        return await self._ask(
            lambda it: it.client.session.get_prompt(
                name, arguments, input_responses=responses, request_state=state, allow_input_required=True
            ),
            None,
        )

    async def complete(
        self,
        reference: PromptReference | ResourceTemplateReference,
        argument: dict[str, str],
        known: dict[str, str] | None,
    ) -> CompleteResult:
        """How an argument can go on. Raises as `get` does."""
        return await self._ask(lambda it: it.client.complete(reference, argument, known), None)

    async def _ask(self, ask: Callable[[Connection], Awaitable[T]], missing: NotFound | None) -> T:
        with answering(self._name, self._timeout_s, self._hidden, missing):
            return await ask(await self._connected())

    def _asks_first(self) -> ToolFailed:
        return ToolFailed(
            f"{self._name} asks something first, and there is nobody to answer it here", may_have_run=False
        )

    def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, PromptListChangedNotification | ResourceListChangedNotification):
            self._changed.set()

    async def _listen(self, connection: Connection) -> None:
        """Hear of changes where the server tells them only to who listens."""
        if not connection.modern:
            return
        while True:
            try:
                async with connection.client.listen(prompts_list_changed=True, resources_list_changed=True) as events:
                    async for _ in events:
                        self._changed.set()
            except ListenNotSupportedError:
                return
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await anyio.sleep(_AGAIN_S)
            self._changed.set()

    async def _list(self, connection: Connection) -> None:
        client, before = connection.client, self.listed
        has_prompts = client.server_capabilities.prompts is not None
        has_resources = client.server_capabilities.resources is not None
        prompts: Sequence[Prompt] = ()
        resources: Sequence[Resource] = ()
        templates: Sequence[ResourceTemplate] = ()
        if has_prompts:
            prompts = await self._whole("prompts", before.prompts, _pages(client.list_prompts, "prompts"))
        if has_resources:
            resources = await self._whole("resources", before.resources, _pages(client.list_resources, "resources"))
            pages = _pages(client.list_resource_templates, "resource_templates")
            templates = await self._whole("resource templates", before.templates, pages)
        self.listed = Offers(tuple(prompts), tuple(resources), tuple(templates), has_resources)
        if self.listed != before:
            self._on_change()

    async def _whole(
        self,
        what: str,
        before: Sequence[Entry],
        page: Callable[[str | None], Awaitable[tuple[list[Entry], str | None]]],
    ) -> Sequence[Entry]:
        """A listing by all its pages; one without an end is cut, and one that fails leaves what there was."""
        found: list[Entry] = []
        left, cursor = MOST_BYTES, None
        try:
            with anyio.fail_after(self._timeout_s):
                for _ in range(MOST_PAGES):
                    entries, cursor = await page(cursor)
                    for entry in entries:
                        left -= len(entry.model_dump_json())
                        if left < 0 or len(found) == MOST:
                            logger.warning("the %s of %s are cut after %d", what, self._name, len(found))
                            return found
                        found.append(entry)
                    if cursor is None:
                        break
        except MCPError as exc:
            if exc.error.code == METHOD_NOT_FOUND:
                return []
            logger.warning("the MCP server %s could not list its %s", self._name, what)
            return before
        except (ValidationError, RuntimeError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            logger.warning("the MCP server %s could not list its %s", self._name, what)
            return before
        return found


def _pages(
    listing: Callable[..., Awaitable[BaseModel]], entries: str
) -> Callable[[str | None], Awaitable[tuple[list[Entry], str | None]]]:
    async def page(cursor: str | None) -> tuple[list[Entry], str | None]:
        found = await listing(cursor=cursor)
        return getattr(found, entries), getattr(found, "next_cursor", None)

    return page
