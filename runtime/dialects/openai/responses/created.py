"""What a client of a WebSocket asks for, and what the socket remembers of a response that is stored nowhere. No I/O."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.http.body import parse_object

MOST_PAST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Past:
    """The last response of a socket that is stored nowhere, and the items that lead to its end."""

    id: str
    items: list[Any]


@dataclass(frozen=True, slots=True)
class Created:
    """A request to create a response.

    `body` is what would be sent to /v1/responses. `items` are those that it begins with, where the socket must remember
    them; `previous` is the response of the socket's past after which it goes on.
    """

    body: bytes
    generates: bool
    items: list[Any] | None
    previous: str | None


def read_created(body: bytes, past: Past | None) -> Created:
    """Read a message. A response of the socket's past becomes the items of its history.

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
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
        previous = value.pop("previous_response_id")
        items = value["input"] = [*past.items, *items]
    is_kept = generates and value.get("store") is not False
    return Created(to_json(value), generates, None if is_kept or not isinstance(items, list) else items, previous)


def past_of(last: bytes, items: list[Any]) -> Past | None:
    """What to remember of a response whose last event has been sent; None where it did not come to its end, or is too
    large to be remembered."""
    response = from_json(last).get("response") or {}
    if len(last) > MOST_PAST_BYTES or response.get("status") not in ("completed", "incomplete"):
        return None
    return Past(response["id"], [*items, *response["output"]])
