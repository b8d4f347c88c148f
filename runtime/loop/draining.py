"""The end of the loop's work when the server stops: within seconds, also where an engine hangs."""

import anyio

from tenuto.runtime.loop.embeddings import Embeddings
from tenuto.runtime.loop.legs import Legs
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.raw import RawRuns

INTERRUPT_S = 1.5
"""How long runs may take to be closed as interrupted. The watchdog leaves all that comes after the drain 5 s."""
ENGINE_STOP_S = 1.0
"""How long an engine may take to stop that has not let them."""


async def drain(legs: Legs, raw: RawRuns, embeddings: Embeddings, models: Models, timeout_s: float) -> None:
    """Take no new turns, and let the runs under way wait or end; after so long they are interrupted, and where they do
    not end even then, their engines are stopped."""

    async def rest() -> None:
        await legs.rest()
        await raw.rest()
        await embeddings.rest()

    legs.is_closed = True
    with anyio.move_on_after(timeout_s):
        await rest()
    legs.interrupt()
    raw.close()
    embeddings.close()
    with anyio.move_on_after(INTERRUPT_S) as interrupting:
        await rest()
    if not interrupting.cancelled_caught:
        return
    legs.interrupt()  # one that was being admitted has begun since
    async with anyio.create_task_group() as group:
        for model in models.shelf.living():
            group.start_soon(model.engine.stop, ENGINE_STOP_S)
    with anyio.move_on_after(ENGINE_STOP_S):
        await rest()
