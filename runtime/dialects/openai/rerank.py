"""POST /v1/rerank, as llama-server, Jina and Text Embeddings Inference have it: which texts answer a question best."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import InvalidRequest
from tenuto.json_bounds import MOST_VALUES
from tenuto.pipelines.embedding import TextTokens
from tenuto.runtime.dialects.openai.embeddings.shapes import TextsUsage
from tenuto.runtime.dialects.vectors import asking, embedded
from tenuto.runtime.http.body import Wire, parse_object, validate
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
    documents: Annotated[list[str | DocumentPart], Field(min_length=1, max_length=MOST_DOCUMENTS)] | None = None
    texts: Annotated[list[str], Field(min_length=1, max_length=MOST_DOCUMENTS)] | None = None
    model: str | None = None
    top_n: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    return_documents: bool | None = None
    return_text: bool | None = None


SERVED: dict[str, str] = {
    "query": "the question",
    "documents": f"1 to {MOST_DOCUMENTS} strings, or objects with `text`",
    "texts": "instead of `documents`, as Text Embeddings Inference has it: the answer has that form too",
    "model": "a model that ranks; if absent or `default`, the first of these",
    "top_n": "only the best so many; all if absent",
    "return_documents": "true: each result has its document",
    "return_text": "the same for `texts`",
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


class TextRank(Shape):
    """How well a text answers the question, in the form of Text Embeddings Inference."""

    index: int
    score: float = Field(description="As the model gives it: the larger, the better.")
    text: str | None = None


class RanksAnswer(RootModel[RerankAnswer | list[TextRank]]):
    """What was asked for by `documents`, or by `texts`."""


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A request, understood."""

    model: EmbeddingModel
    query: str
    documents: list[str]
    most: int
    gives_back: bool
    as_texts: bool

    def encode(self) -> list[TextTokens]:
        """The pairs as the model reads them."""
        return [self.model.encoder.pair(self.query, document) for document in self.documents]


@dataclass(frozen=True, slots=True)
class Rerank:
    """The endpoint."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        async with asking(request, self.runner, partial(read_rerank, models=self.runner.models)) as asked:
            scores, tokens = await embedded(request, self.runner, asked.model, asked.encode, "documents")
        answer = _answer(asked, scores[:, 0].tolist(), tokens)
        return Response(RanksAnswer(answer).model_dump_json(exclude_unset=True), media_type="application/json")


def read_rerank(body: bytes, models: Models) -> RerankRequest:
    """Read the body of a request.

    Raises:
        InvalidRequest: it cannot be understood, or the model does not rank.
        NotFound: there is no such model.
    """
    wire = validate(RerankBody, parse_object(body, MOST_VALUES))
    if (wire.documents is None) == (wire.texts is None):
        raise InvalidRequest("give one of documents and texts", "documents")
    model = models.find_embedding(wire.model or None, ranks=True)
    documents = [one if isinstance(one, str) else one.text for one in wire.documents or wire.texts or ()]
    gives_back = (wire.return_documents if wire.texts is None else wire.return_text) is True
    most = wire.top_n or len(documents)
    return RerankRequest(model, wire.query, documents, most, gives_back, as_texts=wire.texts is not None)


def _answer(asked: RerankRequest, scores: list[float], tokens: int) -> RerankAnswer | list[TextRank]:
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.most]
    if asked.as_texts:
        return [TextRank(index=index, score=scores[index], **_text(asked, index)) for index in best]
    return RerankAnswer(
        object="list",
        model=asked.model.id,
        results=[RankAnswer(index=index, relevance_score=scores[index], **_document(asked, index)) for index in best],
        usage=TextsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _text(asked: RerankRequest, index: int) -> dict[str, Any]:
    return {"text": asked.documents[index]} if asked.gives_back else {}


def _document(asked: RerankRequest, index: int) -> dict[str, Any]:
    return {"document": DocumentAnswer(text=asked.documents[index])} if asked.gives_back else {}
