"""Reading what a request brought: its JSON body, and wire models with errors that name the field."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, from_json
from starlette.requests import ClientDisconnect, Request

from tenuto.errors import InvalidRequest, TenutoError
from tenuto.json_bounds import MOST_VALUES, has_at_most
from tenuto.runtime.http.disconnect import ClientGone


def _fail_fast(schema: object) -> None:
    """Let each list in a schema fail at its first wrong item."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple", "set", "frozenset"):
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            _fail_fast(part)


class Wire(BaseModel):
    """A wire form. Types are not converted; unknown fields are ignored. Of a list, the first wrong item alone is told:
    to gather those of a hostile body would hold the interpreter's lock for seconds."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema


def at_most(members: int) -> BeforeValidator:
    """Refuses a larger object or list before any of its members is looked at."""

    def few(value: object) -> object:
        if isinstance(value, (dict, list)) and len(value) > members:
            raise PydanticCustomError("too_long", "at most {members} members", {"members": members})
        return value

    return BeforeValidator(few)


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


_one_at_a_time: RunVar[CapacityLimiter] = RunVar("large bodies")
"""To understand a body, the interpreter's lock is held for up to a few tenths of a second at a time; of several threads
that do so, each in turn would keep the event loop from it."""


async def received(request: Request, read: Callable[[bytes], T]) -> T:
    """What a reader makes of a request's body. Raises what `read_body` and the reader do."""
    return await understood(await read_body(request), read)


async def understood(body: bytes, read: Callable[[bytes], T]) -> T:
    """What a reader makes of a body, in a thread where the body is large. It touches nothing of the event loop's."""
    if len(body) < LARGE_BYTES:
        return read(body)
    outcome = await anyio.to_thread.run_sync(_outcome, read, body, limiter=_limiter())
    if not isinstance(outcome, TenutoError):
        return outcome
    # An error's traceback holds this frame: where the frame held the error, the body would stay until somebody looks
    # for such circles.
    try:
        raise outcome
    finally:
        del outcome, body, read


def _limiter() -> CapacityLimiter:
    try:
        return _one_at_a_time.get()
    except LookupError:
        _one_at_a_time.set(limiter := CapacityLimiter(1))
        return limiter


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


def read_wire(wire: type[WireT], body: bytes, most_values: int = MOST_VALUES) -> WireT:
    """A wire model from a body. Raises InvalidRequest as `parse_object` and `validate` do."""
    return validate(wire, parse_object(body, most_values))


def field_path(location: tuple[int | str, ...]) -> str:
    """A field as people write it: `tools[1].function.name`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
