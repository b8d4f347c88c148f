"""GET /v1/models: what is served."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.http.answers import answered
from tenuto.runtime.loop.models import Models
from tenuto.runtime.schema.models import model_answer, models_answer


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models

    async def index(self, request: Request) -> Response:
        """List models, the default first."""
        del request
        return answered(models_answer(self.models.served()))

    async def show(self, request: Request) -> Response:
        """One model."""
        return answered(model_answer(self.models.known(request.path_params["id"])))
