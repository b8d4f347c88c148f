"""GET /v1/models, POST /v1/models/{id}/load and /unload: which models there are, and which of them are loaded."""

from dataclasses import dataclass
from functools import partial

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest, ModelLoadFailed
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import expect_admin
from tenuto.runtime.http.body import Wire, read_body, read_wire, understood
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.shelf import LoadOptions
from tenuto.runtime.schema.models import model_answer, models_answer
from tenuto.sessions.principal import Principal

UNLOAD_WAIT_S = 30.0
"""How long an unload waits for those who use the model; after that it goes on by itself."""


class LoadBody(Wire):
    """How a model is to be loaded."""

    source: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="With `swap`: what to load in the model's place, as --model takes it; default: the same again.",
    )
    swap: bool | None = Field(
        default=None, description="Load it anew beside the one that is loaded, and replace that one when it is ready."
    )
    pin: bool | None = Field(default=None, description="Whether it is never unloaded by itself from now on.")
    keep_loaded_s: float | None = Field(
        default=None, ge=0, description="Seconds it stays loaded without use from now on."
    )


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints. Who loads and unloads by name runs the server; a request loads what it asks for by itself."""

    models: Models

    async def index(self, request: Request) -> Response:
        """List models, the default first."""
        del request
        return answered(models_answer(self.models.standings()))

    async def show(self, request: Request) -> Response:
        """One model."""
        known = self.models.known(request.path_params["id"])
        return answered(model_answer(self.models.shelf.standing(known.id)))

    async def load(self, request: Request) -> Response:
        """Load one, or another version of it; answer when it is loaded."""
        principal, id = _admin(request), self.models.known(request.path_params["id"]).id
        wire = await _body(request)
        options = LoadOptions(wire.pin, wire.keep_loaded_s, is_swap=wire.swap is True, source=wire.source)
        try:
            return answered(model_answer(await self.models.shelf.load(id, principal.id, options)))
        except ModelLoadFailed as error:
            if wire.source is None:
                raise
            raise InvalidRequest(str(error), "source") from error

    async def unload(self, request: Request) -> Response:
        """Unload one as soon as nobody uses it."""
        _admin(request)
        id = self.models.known(request.path_params["id"]).id
        return answered(model_answer(await self.models.shelf.unload(id, UNLOAD_WAIT_S)))


def _admin(request: Request) -> Principal:
    return expect_admin(request, "a request for a model loads it by itself; else models are loaded and unloaded")


async def _body(request: Request) -> LoadBody:
    body = await read_body(request)
    return await understood(body, partial(read_wire, LoadBody)) if body.strip() else LoadBody()
