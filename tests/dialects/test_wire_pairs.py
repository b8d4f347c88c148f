"""Every recorded pair comes back whole from a real server, and the official client's types accept it."""

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.beta import BetaRawMessageStreamEvent
from ollama import ChatResponse, EmbedResponse, GenerateResponse, ShowResponse
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import TypeAdapter

from tests.dialects.wire_pairs import _CACHED, _MEASURED, PAIRS, play, served_apart
from tests.e2e.server import Server

pytestmark = pytest.mark.slow

# The type of a text completion wants a finish_reason, which OpenAI itself leaves null until a stream's last chunk.
TYPES: dict[tuple[str, bool], TypeAdapter[Any]] = {
    ("/v1/chat/completions", False): TypeAdapter(ChatCompletion),
    ("/v1/chat/completions", True): TypeAdapter(ChatCompletionChunk),
    ("/v1/embeddings", False): TypeAdapter(CreateEmbeddingResponse),
    ("/api/embed", False): TypeAdapter(EmbedResponse),
    ("/v1/completions", False): TypeAdapter(Completion),
    ("/v1/responses", False): TypeAdapter(Response),
    ("/v1/responses", True): TypeAdapter(ResponseStreamEvent),
    ("/v1/responses/input_tokens", False): TypeAdapter(InputTokenCountResponse),
    ("/v1/messages", False): TypeAdapter(Message),
    ("/v1/messages/count_tokens", False): TypeAdapter(MessageTokensCount),
    ("/api/chat", False): TypeAdapter(ChatResponse),
    ("/api/chat", True): TypeAdapter(ChatResponse),
    ("/api/generate", False): TypeAdapter(GenerateResponse),
    ("/api/generate", True): TypeAdapter(GenerateResponse),
    ("/api/show", False): TypeAdapter(ShowResponse),
}
# Whoever names MCP servers uses a beta.
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent | BetaRawMessageStreamEvent)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server at which no pair meets another."""
    running = served_apart(tmp_path_factory.mktemp("pairs")).start()
    yield running
    running.close()


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_a_recorded_request_is_answered_as_it_was(http: httpx.Client, path: Path) -> None:
    assert play(http, path) == json.loads(path.read_text())


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_the_official_types_accept_what_was_recorded(path: Path) -> None:
    pair = json.loads(path.read_text())
    known = TYPES.get((pair["path"], "stream" in pair))
    answers: list[Any] = pair.get("stream") or [pair["response"]]
    for answer in answers:
        if known is not None and answer != "[DONE]" and "error" not in answer:
            known.validate_python(_numbered(_decoded(answer)))
        if pair["path"] == "/v1/messages" and answer["type"] not in ("message", "error"):
            EVENT.validate_python(_numbered(answer))


def _decoded(answer: dict[str, Any]) -> dict[str, Any]:
    """The official client decodes embeddings in base64 before they are of its type."""
    texts = [one for one in answer.get("data", []) if isinstance(one.get("embedding"), str)]
    if not texts:
        return answer
    return answer | {
        "data": [one | {"embedding": np.frombuffer(b64decode(one["embedding"]), "<f4").tolist()} for one in texts]
    }


def _numbered(value: Any) -> Any:
    """What was replaced in the record is a number again."""
    if isinstance(value, dict):
        return {name: _numbered(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbered(inner) for inner in value]
    return 0 if isinstance(value, str) and value.lower() in _MEASURED | _CACHED else value
