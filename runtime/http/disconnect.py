"""The client's end of a request: work that lasts only while the client is there. Knows no dialect."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import anyio
from starlette.types import Receive

T = TypeVar("T")

GOODBYE_S = 10.0
"""How long a run may take to notice that its client has gone."""


class ClientGone(Exception):
    """The client has closed its connection or has stopped reading; nobody reads an answer."""


class Attached(Protocol):
    """What wants to know that the client has gone: a run."""

    async def disconnected(self) -> None:
        """The client went away."""


async def while_connected(
    receive: Receive,
    run: Attached | None,
    work: Callable[[], Coroutine[Any, Any, T]],
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> T:
    """Do the work, and `beside` it another task that ends with it. The request's body must have been read.

    If the work does not come to its end, whatever the cause, `run` is told.

    Raises:
        ClientGone: the client went away; the work has been cancelled.
    """
    done = False
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            if beside is not None:
                group.start_soon(beside)
            result = await work()
            done = True
            group.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        first = several.exceptions[0]
        raise first from first.__cause__
    finally:
        if not done and run is not None:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                await run.disconnected()
    if not done:
        raise ClientGone
    return result


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
