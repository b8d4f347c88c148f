"""GET /v1/models: what is served."""

from dataclasses import dataclass

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.loop.described import model_facts
from tenuto.runtime.loop.models import Models


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models

    async def index(self, request: Request) -> Response:
        """All models, the default one first."""
        del request
        body = {"object": "list", "data": [model_facts(model) for model in self.models.list()]}
        return Response(to_json(body), media_type="application/json")

    async def show(self, request: Request) -> Response:
        """One model."""
        model = self.models.find(request.path_params["id"])
        return Response(to_json(model_facts(model)), media_type="application/json")
