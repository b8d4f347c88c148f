"""What requests for conversations mean: items as they are kept, and metadata. What would be lost is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.dialects.openai.conversations.fields import KEPT
from tenuto.runtime.dialects.openai.conversations.wire import CreateBody, ItemsBody, UpdateBody
from tenuto.runtime.dialects.openai.responses.input import read_input
from tenuto.runtime.dialects.openai.responses.wire import InputItem
from tenuto.runtime.http.body import read_wire
from tenuto.sessions.items import Item


@dataclass(frozen=True, slots=True)
class Begun:
    """A conversation that is to be made."""

    items: Sequence[Item]
    metadata: dict[str, str]


def read_create(body: bytes) -> Begun:
    """Read a request for a new conversation; it may have no body. Raises InvalidRequest."""
    wire = read_wire(CreateBody, body) if body else CreateBody()
    return Begun(_items(wire.items or ()), wire.metadata or {})


def read_update(body: bytes) -> dict[str, str]:
    """Read what a conversation's metadata is to be. Raises InvalidRequest."""
    return read_wire(UpdateBody, body).metadata or {}


def read_items(body: bytes) -> Sequence[Item]:
    """Read items that are to be added. Raises InvalidRequest."""
    items = _items(read_wire(ItemsBody, body).items)
    if not items:
        raise InvalidRequest("items: there is nothing in them that can be kept", "items")
    return items


def _items(wire: Sequence[InputItem]) -> Sequence[Item]:
    for place, item in enumerate(wire):
        kind = item.type or ("message" if item.role else "")
        if kind not in KEPT:
            path = f"items[{place}].type"
            raise UnsupportedParameter(f"{path}: a conversation keeps no items of type {kind!r}", path)
    return read_input(wire, "items").items
