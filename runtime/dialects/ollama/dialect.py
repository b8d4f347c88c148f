"""Ollama's dialect: chats, prompts, embeddings and models, as its clients expect these."""

from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.dialects.ollama import operations
from tenuto.runtime.dialects.ollama.embed import Embed
from tenuto.runtime.dialects.ollama.endpoint import Answers
from tenuto.runtime.dialects.ollama.errors import ERRORS
from tenuto.runtime.dialects.ollama.models import ModelsApi
from tenuto.runtime.dialects.ollama.stored import StoredApi
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.routes import DocumentedRoute
from tenuto.runtime.stored_facts import StoredFacts


def ollama(services: DialectServices) -> Dialect:
    """The dialect over a server's services."""
    answers = Answers(services.runner, services.keep_alive_s)
    embed = Embed(services.runner)
    models = ModelsApi(services.runner.models, StoredFacts())
    stored = StoredApi(services.runner.models, services.pulls, services.keep_alive_s)
    return Dialect(
        "ollama",
        ERRORS,
        (
            DocumentedRoute("/", models.root, operations.ROOT),
            DocumentedRoute("/api/version", models.version, operations.VERSION),
            DocumentedRoute("/api/tags", models.tags, operations.TAGS),
            DocumentedRoute("/api/ps", models.loaded, operations.LOADED),
            DocumentedRoute("/api/show", models.show, operations.SHOW, methods=["POST"]),
            DocumentedRoute("/api/pull", stored.pull, operations.PULL, methods=["POST"]),
            DocumentedRoute("/api/delete", stored.delete, operations.DELETE, methods=["DELETE"]),
            DocumentedRoute("/api/chat", answers.chat, operations.CHAT, methods=["POST"]),
            DocumentedRoute("/api/generate", answers.generate, operations.GENERATE, methods=["POST"]),
            DocumentedRoute("/api/embed", embed.create, operations.EMBED, methods=["POST"]),
        ),
        home="/api/",
    )
