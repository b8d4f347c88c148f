"""GET /v1/models: what is served."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.loop.models import Model, Models


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models

    async def index(self, request: Request) -> Response:
        """All models, the default one first."""
        del request
        body = {"object": "list", "data": [_facts(model) for model in self.models.list()]}
        return Response(to_json(body), media_type="application/json")

    async def show(self, request: Request) -> Response:
        """One model."""
        model = self.models.find(request.path_params["id"])
        return Response(to_json(_facts(model)), media_type="application/json")


def _facts(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": int(model.created),
        "owned_by": "tenuto",
        "context_length": model.context,
        "description": model.backend.description,
    }
