"""What requests for embeddings are answered with. No meaning.

https://platform.openai.com/docs/api-reference/embeddings/object
"""

from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape


class TextsUsage(Shape):
    """What was read; nothing is written."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingAnswer(Shape):
    """One text's embedding."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers, or 32-bit floats in base64.")


class EmbeddingsFields(Shape):
    """What an answer has besides embeddings."""

    model: str
    usage: TextsUsage


class EmbeddingsAnswer(EmbeddingsFields):
    """Embeddings, in the order of their texts."""

    object: Literal["list"]
    data: list[EmbeddingAnswer]
