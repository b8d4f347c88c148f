"""Reading what a request brought: its JSON body, and wire models with errors that name the field."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from tenuto.errors import InvalidRequest, TenutoError
from tenuto.json_bounds import MOST_VALUES, has_at_most
from tenuto.runtime.http.disconnect import ClientGone


class Wire(BaseModel):
    """A wire form. Types are not converted; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


LARGE_BYTES = 64 << 10
"""A body of this size or more is understood in a thread."""

WireT = TypeVar("WireT", bound=Wire)
T = TypeVar("T")


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        ClientGone: the client went away in the middle of it.
    """
    try:
        # Not `request.body()`, which keeps it for as long as the answer's stream goes on.
        return b"".join([piece async for piece in request.stream()])
    except ClientDisconnect:
        raise ClientGone from None


async def understood(body: bytes, read: Callable[[bytes], T]) -> T:
    """What a reader makes of a body, in a thread where the body is large. It touches nothing of the event loop's."""
    if len(body) < LARGE_BYTES:
        return read(body)
    outcome = await anyio.to_thread.run_sync(_outcome, read, body)
    if not isinstance(outcome, TenutoError):
        return outcome
    # An error's traceback holds this frame: where the frame held the error, the body would stay until somebody looks
    # for such circles.
    try:
        raise outcome
    finally:
        del outcome, body, read


def _outcome(read: Callable[[bytes], T], body: bytes) -> T | TenutoError:
    try:
        return read(body)
    except TenutoError as exc:
        return exc.with_traceback(None)


def parse_object(body: bytes, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        InvalidRequest: malformed JSON, invalid UTF-8, a lone surrogate or too deep nesting, and where; too many values.
    """
    if not has_at_most(body, most_values):
        raise InvalidRequest(f"the body has more than {most_values} JSON values")
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


def read_wire(wire: type[WireT], body: bytes) -> WireT:
    """A wire model from a body. Raises InvalidRequest as `parse_object` and `validate` do."""
    return validate(wire, parse_object(body))


def field_path(location: tuple[int | str, ...]) -> str:
    """A field as people write it: `tools[1].function.name`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
