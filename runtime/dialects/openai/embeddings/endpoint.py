"""POST /v1/embeddings: vectors of texts. No session, no template."""

from base64 import b64encode
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from tenuto.pipelines.embedding import Vectors
from tenuto.runtime.dialects.openai.embeddings.request import EmbeddingsRequest, read_embeddings
from tenuto.runtime.dialects.openai.embeddings.shapes import EmbeddingAnswer, EmbeddingsFields, TextsUsage
from tenuto.runtime.dialects.vectors import asking, embedded, shortened, written
from tenuto.runtime.loop.port import LoopPort

_HEAD = b'{"object":"list","data":['


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The endpoint."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        async with asking(request, self.runner, partial(read_embeddings, models=self.runner.models)) as asked:
            vectors, tokens = await embedded(request, self.runner, asked.model, asked.encode, "input")
        return _answer(asked, shortened(vectors, asked.dimensions), tokens)


def _answer(asked: EmbeddingsRequest, vectors: Vectors, tokens: int) -> Response:
    usage = TextsUsage(prompt_tokens=tokens, total_tokens=tokens)
    tail = b"]," + EmbeddingsFields(model=asked.model.id, usage=usage).encode()[1:]

    def entry(index: int) -> bytes:
        vector = vectors[index]
        embedding = b64encode(vector.astype("<f4").tobytes()).decode() if asked.in_base64 else vector.tolist()
        return EmbeddingAnswer(object="embedding", index=index, embedding=embedding).encode()

    return written(_HEAD, vectors, entry, tail)
