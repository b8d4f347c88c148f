"""POST /v1/rerank, as llama-server and Jina have it: which documents answer a question, the best first."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.json_bounds import MOST_VALUES
from tenuto.pipelines.embedding import TextTokens
from tenuto.runtime.dialects.openai.embeddings.shapes import TextsUsage
from tenuto.runtime.dialects.vectors import embedded
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.body import Wire, parse_object, received, validate
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.models import EmbeddingModel, Models
from tenuto.runtime.loop.port import LoopPort

MOST_DOCUMENTS = 2048


class DocumentPart(Wire):
    """A document in Cohere's form."""

    text: str


class RerankBody(Wire):
    """A request to rank documents. None: not said."""

    query: str
    documents: Annotated[list[str | DocumentPart], Field(min_length=1, max_length=MOST_DOCUMENTS)]
    model: str | None = None
    top_n: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    return_documents: bool | None = None


SERVED: dict[str, str] = {
    "query": "the question",
    "documents": f"1 to {MOST_DOCUMENTS} strings, or objects with `text`",
    "model": "a model that ranks; if absent or `default`, the first of these",
    "top_n": "only the best so many; all if absent",
    "return_documents": "true: each result has its document",
}


class DocumentAnswer(Shape):
    """A document, given back."""

    text: str


class RankAnswer(Shape):
    """How well a document answers the question."""

    index: int
    relevance_score: float = Field(description="As the model gives it: the larger, the better.")
    document: DocumentAnswer | None = None


class RerankAnswer(Shape):
    """The documents by their scores, the best first."""

    object: Literal["list"]
    model: str
    results: list[RankAnswer]
    usage: TextsUsage


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A request, understood."""

    model: EmbeddingModel
    query: str
    documents: list[str]
    most: int
    gives_back: bool

    def encode(self) -> list[TextTokens]:
        """The pairs as the model reads them."""
        return [self.model.encoder.pair(self.query, document) for document in self.documents]


@dataclass(frozen=True, slots=True)
class Rerank:
    """The endpoint."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        asked = await received(request, partial(read_rerank, models=self.runner.models))
        scores, tokens = await embedded(request, self.runner, asked.model, asked.encode, "documents")
        return answered(_answer(asked, scores[:, 0].tolist(), tokens))


def read_rerank(body: bytes, models: Models) -> RerankRequest:
    """Read the body of a request.

    Raises:
        InvalidRequest: it cannot be understood, or the model does not rank.
        NotFound: there is no such model.
    """
    wire = validate(RerankBody, parse_object(body, MOST_VALUES))
    model = models.find_embedding(wire.model or None, ranks=True)
    documents = [one if isinstance(one, str) else one.text for one in wire.documents]
    return RerankRequest(model, wire.query, documents, wire.top_n or len(documents), wire.return_documents is True)


def _answer(asked: RerankRequest, scores: list[float], tokens: int) -> RerankAnswer:
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.most]
    return RerankAnswer(
        object="list",
        model=asked.model.id,
        results=[RankAnswer(index=index, relevance_score=scores[index], **_document(asked, index)) for index in best],
        usage=TextsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _document(asked: RerankRequest, index: int) -> dict[str, Any]:
    return {"document": DocumentAnswer(text=asked.documents[index])} if asked.gives_back else {}
