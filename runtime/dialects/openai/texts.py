"""Texts as OpenAI's requests have them: a string, token ids, or a list of either. Shapes only, no meaning."""

from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticCustomError

Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
"""A text as the ids of its tokens."""


def as_texts(value: Any) -> Any:
    """One text is a list of one; a list of whole numbers is one text of token ids."""
    if isinstance(value, str) or _are_ids(value):
        return [value]
    if isinstance(value, list) and value and all(isinstance(one, str) or _are_ids(one) for one in value):
        return value
    raise PydanticCustomError("texts", "must be a string, a list of token ids, or a list of either")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int and 0 <= one < 2**31 for one in value)
