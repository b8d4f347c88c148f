"""Anthropic's dialect: messages, the count of their tokens, and models, as its clients expect these."""

from tenuto.runtime.dialects.anthropic import operations
from tenuto.runtime.dialects.anthropic.errors import ERRORS
from tenuto.runtime.dialects.anthropic.messages.endpoint import Messages
from tenuto.runtime.dialects.anthropic.models import ModelsApi
from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.routes import DocumentedRoute


def anthropic(services: DialectServices) -> Dialect:
    """The dialect over a server's services. It shares the paths of models with Tenuto's own API."""
    messages = Messages(services.runner, services.keep_alive_s)
    models = ModelsApi(services.runner.models)
    return Dialect(
        "anthropic",
        ERRORS,
        (
            DocumentedRoute("/v1/messages", messages.create, operations.MESSAGES, methods=["POST"]),
            DocumentedRoute("/v1/messages/count_tokens", messages.count, operations.COUNT, methods=["POST"]),
            DocumentedRoute("/v1/models", models.index, operations.MODELS),
            DocumentedRoute("/v1/models/{id:path}", models.show, operations.MODEL),
        ),
        marks=frozenset({"anthropic-version"}),
        key_header="x-api-key",
    )
