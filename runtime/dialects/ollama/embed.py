"""POST /api/embed: vectors of texts. No session, no template."""

import time
from dataclasses import dataclass
from functools import partial

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest
from tenuto.pipelines.embedding import TextTokens, Vectors
from tenuto.runtime.dialects.ollama.shapes import EmbedAnswer, EmbedFields
from tenuto.runtime.dialects.ollama.wire import EmbedBody
from tenuto.runtime.dialects.vectors import asking, embedded, shortened, written
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.body import read_wire
from tenuto.runtime.loop.models import EmbeddingModel, Models
from tenuto.runtime.loop.port import LoopPort

_NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """A request, understood."""

    model: EmbeddingModel
    inputs: list[str]
    truncates: bool
    dimensions: int | None

    def encode(self) -> list[TextTokens]:
        """The texts as the model reads them."""
        encoder = self.model.encoder
        texts = [encoder.encode(text) for text in self.inputs]
        return [encoder.cut(text, self.model.context) for text in texts] if self.truncates else texts


@dataclass(frozen=True, slots=True)
class Embed:
    """The endpoint."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        began = time.monotonic()
        async with asking(request, self.runner, partial(read_embed, models=self.runner.models)) as asked:
            if not asked.inputs:  # Ollama would load the model now
                return answered(EmbedAnswer(model=asked.model.id, embeddings=[], **dict(_figures(began, 0))))
            vectors, tokens = await embedded(request, self.runner, asked.model, asked.encode, "input")
        return _answer(asked, shortened(vectors, asked.dimensions), _figures(began, tokens))


def read_embed(body: bytes, models: Models) -> EmbedRequest:
    """Read the body of a request.

    Raises:
        InvalidRequest: it cannot be understood, or the model cannot embed.
        NotFound: there is no such model.
    """
    wire = read_wire(EmbedBody, body)
    model = models.find_embedding(wire.model or None, ranks=False)
    width = model.info.width
    if (wire.dimensions or 0) > width:
        raise InvalidRequest(f"dimensions: the embeddings of {model.id} have {width} numbers, no more", "dimensions")
    return EmbedRequest(model, wire.input or [], wire.truncate is not False, wire.dimensions or None)


def _answer(asked: EmbedRequest, vectors: Vectors, figures: EmbedFields) -> Response:
    head = b'{"model":%b,"embeddings":[' % to_json(asked.model.id)
    return written(head, vectors, lambda index: to_json(vectors[index].tolist()), b"]," + figures.encode()[1:])


def _figures(began: float, tokens: int) -> EmbedFields:
    spent = int((time.monotonic() - began) * _NANOSECONDS)
    return EmbedFields(total_duration=spent, load_duration=0, prompt_eval_count=tokens)
