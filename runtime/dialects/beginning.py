"""Beginning a turn while its client is there, where that may take its time."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.loop.requests import Turn

T = TypeVar("T")


async def while_there(receive: Receive | None, turn: Turn, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the work of a turn. Where it names something of an MCP server, a client that goes away ends it.

    Any other turn begins at once, and a follower notices who goes away. `receive` None: somebody else looks for that.

    Raises:
        ClientGone: the client went away; the work has been cancelled.
    """
    if receive is None or not turn.names_offers:
        return await work()
    return await while_connected(receive, None, work)
