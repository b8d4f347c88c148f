"""What OpenAI's requests for embeddings look like on the wire, and what becomes of each field. No meaning.

https://platform.openai.com/docs/api-reference/embeddings/create
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenuto.runtime.dialects.openai.texts import Ids, as_texts
from tenuto.runtime.dialects.refusals import Refusal
from tenuto.runtime.http.body import Wire
from tenuto.runtime.loop.embeddings import MOST_TOKENS

MOST_INPUTS = 2048

Inputs = Annotated[list[str | Ids], Field(min_length=1, max_length=MOST_INPUTS)]


class EmbeddingsBody(Wire):
    """A request for embeddings. None: not said."""

    input: Annotated[Inputs, BeforeValidator(as_texts, json_schema_input_type=str | Ids | Inputs)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, lt=2**31)] | None = None


SERVED: dict[str, str] = {
    "input": f"a string, token ids, or a list of either: up to {MOST_INPUTS} texts of {MOST_TOKENS} tokens together",
    "model": "a model that embeds; if absent or `default`, the first of these",
    "encoding_format": "`float`, or `base64` of 32-bit floats, little end first; `float` if absent",
    "dimensions": "the first so many numbers of each embedding, with length 1 again; no more than the model's own",
}

IGNORED: dict[str, str] = {"user": "embeddings belong to no session"}


def _not_euclidean(value: Any) -> bool:
    return value not in (None, 2)


def _given(value: Any) -> bool:
    return value not in (None, "")


REFUSED: dict[str, Refusal] = {
    "embd_normalize": Refusal(_not_euclidean, "embeddings have length 1"),
    "input_type": Refusal(_given, "write what the model wants before a question or a document into the text"),
    "truncate_prompt_tokens": Refusal(_given, "a text that is too long is an error that names it"),
}
"""Fields that would change the answer and are not served."""
