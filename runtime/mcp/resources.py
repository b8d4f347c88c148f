"""A principal's sessions as MCP resources: `session://{id}`, listed by pages, each with its transcript's last items."""

import re

import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest, NotFound
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.schema.transcript import MOST_ITEMS, transcript_answer
from tenuto.sessions import ids
from tenuto.sessions.principal import Principal

TEMPLATE = "session://{id}"
MIME = "application/json"
PAGE = 50

_PREFIX = "session://"


def uri_of(session_id: str) -> str:
    """The resource of a session."""
    return f"{_PREFIX}{session_id}"


def templates() -> t.ListResourceTemplatesResult:
    """The one form that all our resources have."""
    template = t.ResourceTemplate(
        name="session",
        title="A conversation",
        uri_template=TEMPLATE,
        description="A conversation kept by `chat`: its last items, in order. Unlisted conversations can be read too.",
        mime_type=MIME,
    )
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def listed(runner: LoopPort, principal: Principal, cursor: str | None) -> t.ListResourcesResult:
    """A page of the principal's named sessions, the newest first. The cursor is the last id of the page before.

    Raises:
        MCPError: the cursor leads nowhere.
    """
    try:
        found = await runner.list_sessions(principal, implicit=False, limit=PAGE + 1, after=cursor)
    except InvalidRequest as exc:
        raise MCPError(code=t.INVALID_PARAMS, message=f"the cursor is not valid: {exc}") from None
    resources = [
        t.Resource(
            name=each.id, uri=uri_of(each.id), description=f"A conversation of {each.items} items", mime_type=MIME
        )
        for each in found[:PAGE]
    ]
    return t.ListResourcesResult(resources=resources, next_cursor=found[PAGE - 1].id if len(found) > PAGE else None)


def expect_ours(uri: str) -> str:
    """The id of the session whose resource this is, or would be.

    Raises:
        MCPError: it is no session's.
    """
    session_id = uri.removeprefix(_PREFIX)
    if session_id == uri or not re.fullmatch(ids.PATTERN, session_id):
        raise _not_found(NotFound("resource", uri[:200]), uri)
    return session_id


def _not_found(exc: NotFound, uri: str) -> MCPError:
    return MCPError(code=t.INVALID_PARAMS, message=str(exc), data={"uri": uri})


async def read(runner: LoopPort, principal: Principal, uri: str) -> t.ReadResourceResult:
    """The end of a session's transcript.

    Raises:
        MCPError: there is no such session, or it is another principal's.
    """
    session_id = expect_ours(uri)
    try:
        session = await runner.snapshot(principal, session_id)
    except NotFound as exc:
        raise _not_found(exc, uri) from None
    text = transcript_answer(session, limit=MOST_ITEMS).encode().decode()
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type=MIME, text=text)])
