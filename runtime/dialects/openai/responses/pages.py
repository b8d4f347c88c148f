"""Pages of a list as OpenAI gives them: so many after an item, in either order."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.openai.responses.list_shapes import ItemList, ListedItem
from tenuto.runtime.http.query import number

MOST = 100
DEFAULT = 20


@dataclass(frozen=True, slots=True)
class AskedPage:
    """Which page of a list is asked for."""

    after: str | None
    limit: int
    newest_first: bool


def asked_page(request: Request) -> AskedPage:
    """The page that a request asks for by `after`, `limit` and `order`. Raises InvalidRequest."""
    limit = number(request, "limit", DEFAULT, least=1, most=MOST)
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order: must be asc or desc", "order")
    return AskedPage(request.query_params.get("after"), limit, order == "desc")


def page(request: Request, items: Sequence[ListedItem]) -> ItemList:
    """The page of `items` that a request asks for; they are the oldest first.

    Raises:
        InvalidRequest: there is no item `after`, or a parameter is not valid.
    """
    asked = asked_page(request)
    ordered = [*reversed(items)] if asked.newest_first else [*items]
    start = 0
    if asked.after is not None:
        places = [place for place, item in enumerate(ordered, 1) if item.id == asked.after]
        if not places:
            raise InvalidRequest(f"after: there is no item {asked.after!r}", "after")
        start = places[0]
    shown = ordered[start : start + asked.limit]
    return ItemList(
        object="list",
        data=shown,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
        has_more=start + asked.limit < len(ordered),
    )
