"""/v1/mcp/prompts, /v1/mcp/resources and /v1/mcp/complete: what the configured MCP servers have besides tools.

A principal sees what the gateway shows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

import anyio.to_thread
from mcp_types import PromptReference, ResourceTemplateReference
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import Wire, read_wire, received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.query import number
from tenuto.runtime.schema.mcp_offers import (
    PromptsAnswer,
    ResourcesAnswer,
    TemplatesAnswer,
    completion_answer,
    filled_answer,
    prompt_answer,
    read_answer,
    resource_answer,
    template_answer,
)
from tenuto.runtime.schema.mcp_parts import Arguments, PromptName, Server, Uri
from tenuto.tools.offering import Offering

PAGE, MAX_PAGE = 50, 100
MOST_PLACE = 10**6

E = TypeVar("E")
A = TypeVar("A")


class ReadBody(Wire):
    """Which resource to read, by the server's own URI."""

    server: Server
    uri: Uri


class PromptBody(Wire):
    """Which prompt to get, and what to fill it in with."""

    server: Server
    name: PromptName
    arguments: Arguments | None = None


class ArgumentBody(Wire):
    """The argument, as far as it has been written."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    value: Annotated[str, Field(max_length=4096)] = ""


class CompleteBody(Wire):
    """What an argument is of: the prompt of that `name`, or the resources of that `uri_template`."""

    server: Server
    name: PromptName | None = None
    uri_template: Uri | None = None
    argument: ArgumentBody
    arguments: Annotated[Arguments | None, Field(description="The others, as far as they are known.")] = None


@dataclass(frozen=True, slots=True)
class McpOffersApi:
    """The endpoints."""

    offering: Offering

    async def prompts(self, request: Request) -> Response:
        """A page of prompts."""
        found = self.offering.prompts(principal_of(request).id, request.query_params.get("server"))
        data, last, more = _page(request, found, prompt_answer)
        return answered(PromptsAnswer(object="list", data=data, last_id=last, has_more=more))

    async def resources(self, request: Request) -> Response:
        """A page of resources."""
        found = self.offering.resources(principal_of(request).id, request.query_params.get("server"))
        data, last, more = _page(request, found, resource_answer)
        return answered(ResourcesAnswer(object="list", data=data, last_id=last, has_more=more))

    async def templates(self, request: Request) -> Response:
        """A page of templates."""
        found = self.offering.templates(principal_of(request).id, request.query_params.get("server"))
        data, last, more = _page(request, found, template_answer)
        return answered(TemplatesAnswer(object="list", data=data, last_id=last, has_more=more))

    async def read(self, request: Request) -> Response:
        """A resource."""
        wire = await received(request, partial(read_wire, ReadBody))
        read = partial(self.offering.read, principal_of(request).id, wire.server, wire.uri)
        found = await while_connected(request.receive, None, read)
        return await anyio.to_thread.run_sync(lambda: answered(read_answer(wire.server, wire.uri, found)))

    async def get(self, request: Request) -> Response:
        """A prompt with its arguments."""
        wire = await received(request, partial(read_wire, PromptBody))
        who, arguments = principal_of(request).id, wire.arguments or {}
        get = partial(self.offering.prompt, who, wire.server, wire.name, arguments)
        found = await while_connected(request.receive, None, get)
        return await anyio.to_thread.run_sync(lambda: answered(filled_answer(wire.server, wire.name, found)))

    async def complete(self, request: Request) -> Response:
        """How an argument can go on."""
        wire = await received(request, partial(read_wire, CompleteBody))
        if (wire.name is None) is (wire.uri_template is None):
            raise InvalidRequest("give either name or uri_template", "name")
        reference = (
            PromptReference(name=wire.name)
            if wire.name is not None
            else ResourceTemplateReference(uri=wire.uri_template or "")
        )
        argument = {"name": wire.argument.name, "value": wire.argument.value}
        who = principal_of(request).id
        complete = partial(self.offering.complete, who, wire.server, reference, argument, wire.arguments)
        return answered(completion_answer(await while_connected(request.receive, None, complete)))


def _page(
    request: Request, found: Sequence[tuple[str, E]], shown: Callable[[str, E], A]
) -> tuple[list[A], str | None, bool]:
    """Some entries, the place of the last, and whether there are more. A place is a number, also where others came."""
    limit = number(request, "limit", PAGE, least=1, most=MAX_PAGE)
    start = number(request, "after", 0, least=0, most=MOST_PLACE)
    page = found[start : start + limit]
    last = str(start + len(page)) if page else None
    return [shown(server, each) for server, each in page], last, start + limit < len(found)
