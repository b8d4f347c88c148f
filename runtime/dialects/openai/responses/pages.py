"""Pages of a list as OpenAI gives them: so many after an item, in either order."""

from collections.abc import Sequence

from starlette.requests import Request

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.openai.responses.list_shapes import ItemList, ListedItem
from tenuto.runtime.http.query import number

MOST = 100
DEFAULT = 20


def page(request: Request, items: Sequence[ListedItem]) -> ItemList:
    """The page that a request asks for by `after`, `limit` and `order`; `items` are the oldest first.

    Raises:
        InvalidRequest: there is no item `after`, or a parameter is not valid.
    """
    limit = number(request, "limit", DEFAULT, least=1, most=MOST)
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order: must be asc or desc", "order")
    ordered = [*items] if order == "asc" else [*reversed(items)]
    after = request.query_params.get("after")
    start = 0
    if after is not None:
        places = [place for place, item in enumerate(ordered, 1) if item.id == after]
        if not places:
            raise InvalidRequest(f"after: there is no item {after!r}", "after")
        start = places[0]
    shown = ordered[start : start + limit]
    return ItemList(
        object="list",
        data=shown,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
        has_more=start + limit < len(ordered),
    )
