"""One test for two clients: one that answers at once, and its twin in which everything is awaited."""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


async def got(value: Any) -> Any:
    """An answer, which the twin has to be waited for."""
    return await value if inspect.isawaitable(value) else value


async def listed(stream: Any) -> list[Any]:
    """All of a stream, or of all pages of a list."""
    if not hasattr(stream, "__aiter__"):
        stream = await got(stream)
    return [each async for each in stream] if hasattr(stream, "__aiter__") else [*stream]


@asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    """What a context manager of either kind gives."""
    if hasattr(manager, "__aenter__"):
        async with manager as given:
            yield given
    else:
        with manager as given:
            yield given
