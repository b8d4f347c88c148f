"""A request for embeddings: what its fields mean, and which of them are refused."""

from dataclasses import dataclass

import numpy as np

from tenuto.errors import InvalidRequest
from tenuto.json_bounds import MOST_PROMPT_VALUES
from tenuto.pipelines.embedding import TextTokens
from tenuto.runtime.dialects.openai.embeddings.wire import REFUSED, EmbeddingsBody
from tenuto.runtime.dialects.refusals import refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.models import EmbeddingModel, Models


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A request, understood."""

    model: EmbeddingModel
    inputs: list[str | list[int]]
    in_base64: bool
    dimensions: int | None

    def encode(self) -> list[TextTokens]:
        """The texts as the model reads them; ids are taken as they are."""
        encode = self.model.encoder.encode
        return [encode(text) if isinstance(text, str) else np.array(text, np.int32) for text in self.inputs]


def read_embeddings(body: bytes, models: Models) -> EmbeddingsRequest:
    """Read the body of a request.

    Raises:
        InvalidRequest: it cannot be understood, or the model cannot embed; UnsupportedParameter for what is not served.
        NotFound: there is no such model.
    """
    value = parse_object(body, MOST_PROMPT_VALUES)
    refuse(value, REFUSED)
    wire = validate(EmbeddingsBody, value)
    model = models.find_embedding(wire.model or None, ranks=False)
    width = model.info.width
    if wire.dimensions is not None and wire.dimensions > width:
        raise InvalidRequest(f"dimensions: the embeddings of {model.id} have {width} numbers, no more", "dimensions")
    return EmbeddingsRequest(model, wire.input, wire.encoding_format == "base64", wire.dimensions)
