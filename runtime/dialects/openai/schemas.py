"""JSON schemas that a request brings: whether each is one. What a grammar can make of it is for the codec to say."""

from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.tools.schemas import fault, oversize


def check_schema(schema: dict[str, Any], param: str) -> None:
    """Hold a schema to the rules of its own draft, or of 2020-12, and to the limits of what is worked with.

    Raises:
        InvalidRequest: it is none, or it is too large; the text says where, or which limit.
    """
    if (limit := oversize(schema)) is not None:
        raise InvalidRequest(f"{param}: the schema is too large: {limit}", param)
    if (problem := fault(schema)) is not None:
        raise InvalidRequest(f"{param}: not a JSON schema: {problem}", param)
