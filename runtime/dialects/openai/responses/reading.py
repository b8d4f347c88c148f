"""A response read from its leg, which is under way or was kept: as it stands, whole, or as a stream."""

import logging
import time
from collections.abc import AsyncGenerator

from tenuto.errors import LegNotFound, TenutoError
from tenuto.runtime.dialects.openai.responses.answer import Head
from tenuto.runtime.dialects.openai.responses.asked import Asked
from tenuto.runtime.dialects.openai.responses.encoder import ResponseEncoder
from tenuto.runtime.dialects.openai.responses.ids import response_id
from tenuto.runtime.dialects.openai.responses.shapes import ResponseAnswer
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.records import RunStatus
from tenuto.tools.registry import by_server

logger = logging.getLogger(__name__)

AnyLeg = Follower | PastLeg


def asked_of(leg: AnyLeg) -> Asked:
    """What was asked for. Raises LegNotFound where the answer was kept for another front end."""
    assert leg.kept is not None
    if not Asked.is_in(leg.kept.request):
        raise LegNotFound(response_id(leg.leg_id))
    return Asked.of_json(leg.kept.request)


def servers_tools(runner: LoopPort) -> Listed:
    """The server's tools, by the label of their server."""
    return by_server(runner.registry.list())


def encoder_of(
    leg: AnyLeg, asked: Asked, listed: Listed, *, streamed: bool, after: int | None = None
) -> ResponseEncoder:
    """What makes the response of a leg that answers what was asked."""
    created_at = time.time() if leg.kept is None else leg.kept.created_at
    head = Head(response_id(leg.leg_id), asked, leg.model, created_at, stored=leg.kept is not None)
    return ResponseEncoder(head, listed, streamed=streamed, after=after)


def as_it_stands(leg: AnyLeg, encoder: ResponseEncoder) -> ResponseAnswer:
    """The response as far as it has come."""
    encoder.opening()
    for event in leg.told():
        encoder.take(event)
    if leg.is_under_way or leg.snapshot().status is RunStatus.RUNNING:
        return encoder.so_far()
    return encoder.whole(leg.snapshot(), _ended_at(leg))


async def frames(leg: AnyLeg, encoder: ResponseEncoder) -> AsyncGenerator[bytes, None]:
    """The frames of a response's stream. Whatever goes wrong is the last of them."""
    try:
        yield encoder.opening()
        async for _, event in leg.events():
            yield encoder.take(event)
        if leg.snapshot().status is not RunStatus.RUNNING:  # else the server is stopping, and goes on with it later
            yield encoder.closing(leg.snapshot(), _ended_at(leg))
    except TenutoError as exc:
        yield encoder.failure(exc)
    except Exception:
        logger.exception("the stream of run %s failed", leg.id)
        yield encoder.failure(TenutoError(INTERNAL))


def _ended_at(leg: AnyLeg) -> float:
    kept = leg.kept
    return time.time() if kept is None or kept.ended_at is None else kept.ended_at
