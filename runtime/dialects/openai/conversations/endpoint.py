"""/v1/conversations: sessions as OpenAI's clients know them, and their items."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import NotFound
from tenuto.runtime.dialects.naming import naming
from tenuto.runtime.dialects.openai.conversations.request import read_create, read_items, read_update
from tenuto.runtime.dialects.openai.conversations.shapes import ConversationAnswer, DeletedConversation
from tenuto.runtime.dialects.openai.responses.input_items import listed
from tenuto.runtime.dialects.openai.responses.list_shapes import ItemList, ListedItem
from tenuto.runtime.dialects.openai.responses.pages import asked_page
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import LARGE_BYTES, received
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.port import LoopPort
from tenuto.sessions.ids import new_hex
from tenuto.sessions.items import item_bytes
from tenuto.sessions.parts import NamedPart
from tenuto.sessions.session import Session

_NAMES = {"messages": "items"}


@dataclass(frozen=True, slots=True)
class Conversations:
    """The endpoints. A conversation is the session of its id."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Begin a conversation."""
        begun = await received(request, read_create)
        id = f"conv_{new_hex()}"
        with naming(_NAMES):
            begin = partial(self.runner.begin_session, principal_of(request), id, begun.items, begun.metadata)
            return _told(await while_connected(request.receive, None, begin))

    async def retrieve(self, request: Request) -> Response:
        """The conversation without its items."""
        with _named(request) as id:
            return _told(await self.runner.session(principal_of(request), id))

    async def update(self, request: Request) -> Response:
        """Let the conversation have other metadata."""
        metadata = await received(request, read_update)
        with _named(request) as id:
            return _told(await self.runner.describe_session(principal_of(request), id, metadata))

    async def delete(self, request: Request) -> Response:
        """Forget the conversation with its items and responses; what is under way in it is cancelled."""
        with _named(request) as id:
            await self.runner.delete_session(principal_of(request), id)
        return answered(DeletedConversation(id=id, object="conversation.deleted", deleted=True))

    async def items(self, request: Request) -> Response:
        """A page of the conversation's items."""
        wanted = asked_page(request)
        after = None if wanted.after is None else _part_name(wanted.after)
        with _named(request) as id:
            page = await self.runner.parts(
                principal_of(request), id, after, wanted.limit, newest_first=wanted.newest_first
            )
        return await _list(page.parts, has_more=page.has_more)

    async def add_items(self, request: Request) -> Response:
        """Add items at the end; no model is asked."""
        items = await received(request, read_items)
        with _named(request) as id, naming(_NAMES):
            add = partial(self.runner.add_items, principal_of(request), id, items)
            parts = await while_connected(request.receive, None, add)
        return await _list(parts, has_more=False)

    async def item(self, request: Request) -> Response:
        """One item."""
        with _named(request) as id:
            part, item = await self._item(request, id)
        return await _answered(item, [part])

    async def delete_item(self, request: Request) -> Response:
        """Take an item out of the conversation."""
        with _named(request) as id:
            part, _ = await self._item(request, id)
            return _told(await self.runner.remove_part(principal_of(request), id, part.name))

    async def _item(self, request: Request, id: str) -> tuple[NamedPart, ListedItem]:
        item_id: str = request.path_params["item_id"]
        part = await self.runner.part(principal_of(request), id, _part_name(item_id))
        item = _listed(part)
        if item.id != item_id:
            raise NotFound("item", item_id)
        return part, item


@contextmanager
def _named(request: Request) -> Iterator[str]:
    """The id that the request names; errors name what is not there as the request does."""
    id: str = request.path_params["id"]
    try:
        yield id
    except NotFound as missing:
        if missing.kind == "item":
            raise NotFound("item", request.path_params["item_id"]) from None
        raise NotFound("conversation", id) from None


def _part_name(item_id: str) -> str:
    """An item's id is the name of the part with a prefix that tells its type."""
    return item_id.partition("_")[2]


def _listed(part: NamedPart) -> ListedItem:
    return listed(part.part, part.name, {})


def _told(session: Session) -> Response:
    return answered(
        ConversationAnswer(
            id=session.id,
            object="conversation",
            created_at=int(session.created_at),
            metadata={**session.metadata},
        )
    )


async def _list(parts: Sequence[NamedPart], *, has_more: bool) -> Response:
    data = [_listed(part) for part in parts]
    ends = (data[0].id, data[-1].id) if data else (None, None)
    page = ItemList(object="list", data=data, first_id=ends[0], last_id=ends[1], has_more=has_more)
    return await _answered(page, parts)


async def _answered(shape: Shape, parts: Sequence[NamedPart]) -> Response:
    """An answer, written in a thread where its items are large."""
    if sum(item_bytes(one.part.item) for one in parts) < LARGE_BYTES:
        return answered(shape)
    return await anyio.to_thread.run_sync(answered, shape)
