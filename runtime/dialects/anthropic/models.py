"""GET /v1/models in Anthropic's form, for clients that name a version of its API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.anthropic.errors import REQUEST_ID_HEADER, new_request_id
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.query import number
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.shelf import Standing

MOST_ON_A_PAGE = 1000


class AnthropicModel(Shape):
    """A model that is served."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str = Field(description="When it was loaded, as RFC 3339 has it.")
    lifecycle: Literal["active"]
    max_input_tokens: int | None = Field(
        default=None, description="Most tokens a conversation can have; left out of a model that is not loaded."
    )
    max_tokens: int | None = Field(default=None, description="The same: an answer is a part of it.")


class AnthropicModels(Shape):
    """A page of the models, the default first."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models

    async def index(self, request: Request) -> Response:
        """List models, the default first."""
        models = [standing for standing in self.models.standings() if standing.kind == "text"]
        limit = number(request, "limit", 20, least=1, most=MOST_ON_A_PAGE)
        start, end = _place(request, "after_id", models), _place(request, "before_id", models)
        if end is not None:
            page, has_more = models[max(0, end - limit) : end], end > limit
        else:
            first = 0 if start is None else start + 1
            page, has_more = models[first : first + limit], len(models) > first + limit
        body = AnthropicModels(
            data=[_model(model) for model in page],
            has_more=has_more,
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
        )
        return answered(body, headers={REQUEST_ID_HEADER: new_request_id()})

    async def show(self, request: Request) -> Response:
        """One model."""
        known = self.models.meant(request.path_params["id"])
        return answered(_model(self.models.shelf.standing(known.id)), headers={REQUEST_ID_HEADER: new_request_id()})


def _place(request: Request, name: str, models: Sequence[Standing]) -> int | None:
    id = request.query_params.get(name)
    if not id:
        return None
    place = next((place for place, model in enumerate(models) if model.id == id), None)
    if place is None:
        raise InvalidRequest(f"{name}: there is no model {id!r}", name)
    return place


def _model(standing: Standing) -> AnthropicModel:
    model = standing.model
    created = 0.0 if model is None else model.created
    context = {} if model is None else {"max_input_tokens": model.context, "max_tokens": model.context}
    return AnthropicModel(
        type="model",
        id=standing.id,
        display_name=standing.id,
        created_at=datetime.fromtimestamp(int(created), UTC).isoformat().replace("+00:00", "Z"),
        lifecycle="active",
        **context,
    )
