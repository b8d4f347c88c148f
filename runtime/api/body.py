"""Reading what a request brought: its JSON body, and wire models with errors that name the field."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from tenuto.errors import InvalidRequest
from tenuto.runtime.api.connection import ClientGone


class Wire(BaseModel):
    """A wire form. Types are not converted; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


WireT = TypeVar("WireT", bound=Wire)


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        InvalidRequest: it is encoded.
        ClientGone: the client went away in the middle of it.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidRequest(
            f"a body with Content-Encoding {encoding!r} is not read; send it plain", "Content-Encoding"
        )
    try:
        return await request.body()
    except ClientDisconnect:
        raise ClientGone from None


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        InvalidRequest: malformed JSON, invalid UTF-8, a lone surrogate or too deep nesting, and where.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as exc:
        raise InvalidRequest(f"the body is not valid JSON: {exc}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value


def validate(wire: type[WireT], value: dict[str, Any]) -> WireT:
    """A wire model from JSON.

    Raises:
        InvalidRequest: the first thing that is wrong; `param` is its path, as in `messages[0].content`.
    """
    try:
        return wire.model_validate(value)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        param = field_path(first["loc"])
        raise InvalidRequest(f"{param}: {first['msg'][:1].lower()}{first['msg'][1:]}", param) from None


def field_path(location: tuple[int | str, ...]) -> str:
    """A field as people write it: `tools[1].function.name`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
