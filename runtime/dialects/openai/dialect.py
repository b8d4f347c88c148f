"""OpenAI's dialect: responses, conversations, chat and text completions, embeddings, and what llama-server has."""

from starlette.routing import WebSocketRoute

from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.dialects.openai import operations
from tenuto.runtime.dialects.openai.chat.endpoint import ChatCompletions
from tenuto.runtime.dialects.openai.completions.endpoint import Completions
from tenuto.runtime.dialects.openai.conversations.endpoint import Conversations
from tenuto.runtime.dialects.openai.embeddings.endpoint import Embeddings
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.native_completions.endpoint import NativeCompletions
from tenuto.runtime.dialects.openai.properties import PropertiesApi
from tenuto.runtime.dialects.openai.rerank import Rerank
from tenuto.runtime.dialects.openai.responses.compact import Compaction
from tenuto.runtime.dialects.openai.responses.endpoint import Responses
from tenuto.runtime.dialects.openai.responses.socket import ResponseSockets
from tenuto.runtime.dialects.openai.responses.stored import StoredResponses
from tenuto.runtime.dialects.openai.tokens import TokenizeApi
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.routes import DocumentedRoute, needs_upgrade


def openai(services: DialectServices) -> Dialect:
    """The dialect over a server's services."""
    chat = ChatCompletions(services.runner, services.keep_alive_s)
    completions = Completions(services.runner, services.keep_alive_s)
    native = NativeCompletions(services.runner, services.keep_alive_s)
    embeddings, rerank = Embeddings(services.runner), Rerank(services.runner)
    responses = Responses(services.runner, services.keep_alive_s)
    sockets, compaction = ResponseSockets(responses), Compaction(services.runner)
    stored = StoredResponses(services.runner, services.keep_alive_s)
    conversations = Conversations(services.runner)
    properties = PropertiesApi(services.runner.models)
    tokens = TokenizeApi(services.runner)
    return Dialect(
        "openai",
        ERRORS,
        (
            DocumentedRoute("/v1/chat/completions", chat.create, operations.CHAT, methods=["POST"]),
            DocumentedRoute("/v1/chat/completions/input_tokens", chat.count, operations.CHAT_TOKENS, methods=["POST"]),
            DocumentedRoute("/v1/responses", responses.create, operations.RESPONSES, methods=["POST"]),
            WebSocketRoute("/v1/responses", sockets.open),
            DocumentedRoute("/v1/responses", needs_upgrade, operations.RESPONSES_SOCKET),
            DocumentedRoute("/v1/responses/input_tokens", responses.count, operations.INPUT_TOKENS, methods=["POST"]),
            DocumentedRoute("/v1/responses/compact", compaction.create, operations.COMPACT, methods=["POST"]),
            DocumentedRoute("/v1/responses/{id}", stored.retrieve, operations.RESPONSE),
            DocumentedRoute("/v1/responses/{id}", stored.delete, operations.DELETE_RESPONSE, methods=["DELETE"]),
            DocumentedRoute("/v1/responses/{id}/cancel", stored.cancel, operations.CANCEL_RESPONSE, methods=["POST"]),
            DocumentedRoute("/v1/responses/{id}/input_items", stored.input_items, operations.INPUT_ITEMS),
            *_conversation_routes(conversations),
            DocumentedRoute("/v1/completions", completions.create, operations.COMPLETIONS, methods=["POST"]),
            DocumentedRoute("/completion", native.create, operations.NATIVE_COMPLETIONS, methods=["POST"]),
            DocumentedRoute("/infill", native.infill, operations.INFILL, methods=["POST"]),
            DocumentedRoute("/v1/embeddings", embeddings.create, operations.EMBEDDINGS, methods=["POST"]),
            DocumentedRoute("/v1/rerank", rerank.create, operations.RERANK, methods=["POST"]),
            DocumentedRoute("/props", properties.props, operations.PROPS),
            DocumentedRoute("/slots", properties.slots, operations.SLOTS),
            DocumentedRoute("/tokenize", tokens.tokenize, operations.TOKENIZE, methods=["POST"]),
            DocumentedRoute("/detokenize", tokens.detokenize, operations.DETOKENIZE, methods=["POST"]),
            DocumentedRoute("/apply-template", tokens.apply_template, operations.APPLY_TEMPLATE, methods=["POST"]),
        ),
    )


def _conversation_routes(its: Conversations) -> list[DocumentedRoute]:
    return [
        DocumentedRoute("/v1/conversations", its.create, operations.CREATE_CONVERSATION, methods=["POST"]),
        DocumentedRoute("/v1/conversations/{id}", its.retrieve, operations.CONVERSATION),
        DocumentedRoute("/v1/conversations/{id}", its.update, operations.UPDATE_CONVERSATION, methods=["POST"]),
        DocumentedRoute("/v1/conversations/{id}", its.delete, operations.DELETE_CONVERSATION, methods=["DELETE"]),
        DocumentedRoute("/v1/conversations/{id}/items", its.items, operations.ITEMS),
        DocumentedRoute("/v1/conversations/{id}/items", its.add_items, operations.ADD_ITEMS, methods=["POST"]),
        DocumentedRoute("/v1/conversations/{id}/items/{item_id}", its.item, operations.ITEM),
        DocumentedRoute(
            "/v1/conversations/{id}/items/{item_id}", its.delete_item, operations.DELETE_ITEM, methods=["DELETE"]
        ),
    ]
