"""Vectors and scores of texts: held to what the model takes, made by its engine, waited for at the end. No session."""

from collections.abc import Sequence

import anyio

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.embedding import TextTokens, Vectors
from tenuto.runtime.loop.models import EmbeddingModel, Models
from tenuto.sessions.principal import Principal

MOST_TOKENS = 300_000
"""Of all texts of a request together, as OpenAI has it."""


class Embeddings:
    """Those that are under way. Event-loop thread only."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._under_way = 0
        self._ends = anyio.Event()

    async def embed(self, principal: Principal, model: EmbeddingModel, texts: Sequence[TextTokens]) -> Vectors:
        """A row for each text, which `check_lengths` has passed. Raises what `EmbeddingClient.embed` does."""
        self._under_way += 1
        try:
            return await model.engine.embed(texts, principal.id)
        finally:
            self._under_way -= 1
            self._ends.set()

    def close(self) -> None:
        """Let all who wait go."""
        for model in self._models.served():
            if isinstance(model, EmbeddingModel):
                model.engine.close()

    async def rest(self) -> None:
        """Return when none is under way."""
        while self._under_way:
            self._ends = anyio.Event()
            await self._ends.wait()


def check_lengths(model: EmbeddingModel, texts: Sequence[TextTokens], field: str) -> None:
    """Hold texts to what the model takes; any thread. `field` is what holds them.

    Raises:
        ContextTooLong, InvalidRequest: `param` is the text that is wrong, as in `input[0]`.
    """
    for index, tokens in enumerate(texts):
        param = f"{field}[{index}]"
        if len(tokens) > model.context:
            raise ContextTooLong(len(tokens), model.context, text=param)
        if not len(tokens):
            raise InvalidRequest(f"{param}: an empty text has no tokens to read", param)
        if tokens.max() >= model.encoder.info.vocabulary or tokens.min() < 0:
            raise InvalidRequest(f"{param}: a token beyond the vocabulary of {model.encoder.info.vocabulary}", param)
    total = sum(map(len, texts))
    if total > MOST_TOKENS:
        raise InvalidRequest(f"{field}: {total} tokens in all texts are more than {MOST_TOKENS}", field)
