"""A dialect that Tenuto does not have, made from outside of it: its routes, its errors, its keys."""

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from tenuto.errors import (
    BodyTooLarge,
    Forbidden,
    HeadTooLarge,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    TenutoError,
    Unauthenticated,
    UnknownUrl,
)
from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import Wire, read_body, read_wire
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.errors import ErrorForm, Problem, WireError
from tenuto.runtime.http.routes import Doc, DocumentedRoute
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.items import UserItem


class Complaint(Shape):
    """What went wrong, as toys say it."""

    ouch: str
    kind: str
    what: str


TABLE = {
    TenutoError: WireError(500, "broken"),
    InvalidRequest: WireError(400, "silly"),
    Unauthenticated: WireError(401, "stranger"),
    Forbidden: WireError(403, "elsewhere"),
    NotFound: WireError(404, "lost"),
    UnknownUrl: WireError(404, "nowhere"),
    MethodNotAllowed: WireError(405, "otherwise"),
    BodyTooLarge: WireError(413, "heavy"),
    Overloaded: WireError(429, "busy"),
    HeadTooLarge: WireError(431, "big_head"),
}


def _body(problem: Problem, entry: WireError) -> Complaint:
    return Complaint(ouch=problem.message, kind=entry.type, what=problem.code)


def _headers(body: Shape) -> dict[str, str]:
    assert isinstance(body, Complaint)
    return {"toy-kind": body.kind}


ERRORS = ErrorForm(TABLE, Complaint, _body, _headers)


class Say(Wire):
    """What is said."""

    say: str


class Said(Shape):
    """What the model says."""

    said: str
    who: str


class Toys(Shape):
    """What may be played with."""

    toys: list[str]


class Mine(Shape):
    """Whether a toy is there."""

    toy: Literal[True]


def toy(services: DialectServices) -> Dialect:
    """The dialect. It has a path of its own, and one that another dialect has too."""

    async def say(request: Request) -> Response:
        wire = read_wire(Say, await read_body(request))
        if wire.say == "where?":
            raise NotFound("toy", "bear")
        turn = Turn(principal=principal_of(request), model=None, items=(UserItem(wire.say),))
        answer = await (await services.runner.start(turn)).answer()
        return answered(Said(said=answer.text, who=principal_of(request).id))

    async def models(request: Request) -> Response:
        return answered(Toys(toys=[model.id for model in services.runner.models.list()]))

    async def alive(request: Request) -> Response:
        return answered(Mine(toy=True))

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(f"hello {principal_of(socket).id}")
        await socket.close()

    return Dialect(
        "toy",
        ERRORS,
        (
            DocumentedRoute("/toy/say", say, Doc("Toy", "Say something", Said, body=Say), methods=["POST"]),
            DocumentedRoute("/toy/alive", alive, Doc("Toy", "Whether it is there", Mine, public=True)),
            DocumentedRoute("/v1/models", models, Doc("Toy", "All toys", Toys)),
            WebSocketRoute("/toy/talk", talk),
        ),
        marks=frozenset({"toy-version"}),
        key_header="x-toy-key",
    )
