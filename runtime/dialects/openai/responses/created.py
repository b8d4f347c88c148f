"""What a client of a WebSocket asks for, and what the socket remembers of a response that is stored nowhere. No I/O."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from tenuto.errors import BodyTooLarge, InvalidRequest, UnsupportedParameter
from tenuto.runtime.http.body import parse_object

MOST_PAST_BYTES = 16 << 20
"""What a request may be together with the past that it goes on from."""


@dataclass(frozen=True, slots=True)
class Past:
    """The last response of a socket that is stored nowhere, and the items that lead to its end; those of the stored
    response `after` come before them."""

    id: str
    after: str | None
    items: list[Any]


@dataclass(frozen=True, slots=True)
class Created:
    """A request to create a response.

    `body` is what would be sent to /v1/responses. `items` are those that it begins with, where the socket must remember
    them, and `after` is the stored response that comes before these; `previous` is the response of the socket's past
    after which it goes on.
    """

    body: bytes
    generates: bool
    items: list[Any] | None
    after: str | None
    previous: str | None


def read_created(body: bytes, past: Past | None) -> Created:
    """Read a message. A response of the socket's past becomes the items of its history.

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
        BodyTooLarge: the past is too large to go on from.
    """
    value = parse_object(body)
    if value.pop("type", None) != "response.create":
        raise InvalidRequest("type: response.create is what can be sent here", "type")
    for name in ("stream_id", "background"):
        if value.get(name):
            raise UnsupportedParameter(f"{name} is not supported over a WebSocket; leave it out", name)
    generates = value.pop("generate", None) is not False
    given, previous = value.get("input"), None
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if past is not None and value.get("previous_response_id") == past.id and isinstance(items, list):
        previous, value["previous_response_id"] = past.id, past.after
        items = value["input"] = [*past.items, *items]
    joined = to_json(value)
    if previous is not None and len(joined) > MOST_PAST_BYTES:
        raise BodyTooLarge(MOST_PAST_BYTES)
    is_kept = generates and value.get("store") is not False
    kept = None if is_kept or not isinstance(items, list) else items
    return Created(joined, generates, kept, value.get("previous_response_id"), previous)


def past_of(last: bytes, items: list[Any], after: str | None) -> Past | None:
    """What to remember of a response whose last event has been sent; None where it did not come to its end, or is too
    large to be remembered."""
    response = from_json(last).get("response") or {}
    if len(last) > MOST_PAST_BYTES or response.get("status") not in ("completed", "incomplete"):
        return None
    return Past(response["id"], after, [*items, *response["output"]])
