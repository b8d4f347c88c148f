"""A principal's sessions and their runs, and the models, as MCP resources: listed by pages, read, and subscribed to."""

import mcp.types as t

from tenuto.errors import InvalidRequest, NotFound
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.mcp import uris
from tenuto.runtime.mcp.icons import icon
from tenuto.runtime.mcp.paging import Source, whole
from tenuto.runtime.mcp.uris import ModelName, RunName, SessionName
from tenuto.runtime.schema.models import model_answer
from tenuto.runtime.schema.runs import run_answer
from tenuto.runtime.schema.transcript import MOST_ITEMS, transcript_answer
from tenuto.sessions.principal import Principal

MIME = "application/json"
PAGE = 50
"""Resources of one page, of all sources together."""


def templates() -> list[t.ResourceTemplate]:
    """The forms that our own resources have."""
    return [
        t.ResourceTemplate(
            name="session",
            title="A conversation",
            uri_template=uris.SESSION_TEMPLATE,
            description="A conversation kept by `chat`: its last items, in order. Unlisted ones can be read too.",
            mime_type=MIME,
            icons=[icon("session")],
        ),
        t.ResourceTemplate(
            name="run",
            title="A run",
            uri_template=uris.RUN_TEMPLATE,
            description="One answer of a conversation: how it stands, what it waits for, its text and its figures.",
            mime_type=MIME,
            icons=[icon("run")],
        ),
        t.ResourceTemplate(
            name="model",
            title="A model",
            uri_template=uris.MODEL_TEMPLATE,
            description="A model that `chat` can use: whether it is loaded, what it can do, and its caches.",
            mime_type=MIME,
            icons=[icon("model")],
        ),
    ]


def sources(runner: LoopPort, principal: Principal) -> list[Source[t.Resource]]:
    """The principal's named sessions, the newest first, and the models."""

    async def sessions(place: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        try:
            found = await runner.list_sessions(principal, implicit=False, limit=limit + 1, after=place)
        except InvalidRequest as exc:
            raise InvalidRequest(f"the cursor is not valid: {exc}", "cursor") from None
        listed = [
            t.Resource(
                name=each.id,
                title=f"Conversation {each.id}",
                uri=uris.session_uri(each.id),
                description=f"A conversation of {each.items} items",
                mime_type=MIME,
                icons=[icon("session")],
            )
            for each in found[:limit]
        ]
        return listed, found[limit - 1].id if len(found) > limit else None

    models = [
        t.Resource(
            name=each.id,
            title=f"Model {each.id}",
            uri=uris.model_uri(each.id),
            description=f"A model that is {each.state}",
            mime_type=MIME,
            icons=[icon("model")],
        )
        for each in runner.models.standings()
    ]
    return [Source("sessions", sessions), whole("models", models)]


async def read(runner: LoopPort, principal: Principal, uri: str) -> t.ReadResourceResult:
    """One of them.

    Raises:
        MCPError: there is none, or it is another principal's.
    """
    try:
        text = await _text(runner, principal, uri)
    except NotFound:
        raise uris.no_resource(uri) from None
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type=MIME, text=text)])


async def _text(runner: LoopPort, principal: Principal, uri: str) -> str:
    """Raises NotFound."""
    match uris.named(uri):
        case SessionName(id=session_id):
            session = await runner.snapshot(principal, session_id)
            return transcript_answer(session, limit=MOST_ITEMS).encode().decode()
        case RunName(session=session_id, run=run_id):
            run = await runner.run(principal, run_id)
            if run.session_id == session_id:
                return run_answer(run).encode().decode()
        case ModelName(id=model_id):
            for standing in runner.models.standings():
                if standing.id == model_id:
                    return model_answer(standing).encode().decode()
    raise NotFound("resource", uri[:200])


async def expect_subscribable(runner: LoopPort, principal: Principal, uri: str) -> None:
    """Let a principal hear of its sessions, also of one that comes later, and of its runs. A model tells nothing.

    Raises:
        MCPError: it is another resource, or there is no such run of this principal's.
    """
    match uris.named(uri):
        case SessionName():
            return
        case RunName():
            await read(runner, principal, uri)
        case _:
            raise uris.no_resource(uri)
