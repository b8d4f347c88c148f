"""One version of a model: its load, within the budget, and its end, when nobody uses it any more. No table."""

import logging

import anyio

from tenuto.errors import ModelLoadFailed, TenutoError
from tenuto.runtime.loop.life.accountant import Accountant
from tenuto.runtime.loop.life.entry import Entry
from tenuto.runtime.loop.life.loading import Loaded, Loads
from tenuto.runtime.loop.life.room import Room

logger = logging.getLogger(__name__)

FREED_S = 10.0
"""How long weights may be held by requests that read something with them, after the engine has ended."""
MOST_READING = 2
"""How many models are read into memory at a time."""
FOR_ROOM = "it waits for room"
_POLL_S = 0.02


class Versions:
    """Loads and frees. Event-loop thread only."""

    def __init__(self, loads: Loads, accountant: Accountant, room: Room) -> None:
        self._loads, self._accountant, self._room = loads, accountant, room
        self._reading = anyio.CapacityLimiter(MOST_READING)
        self._count = 0

    async def load(self, entry: Entry) -> Loaded | None:
        """Load what an entry says; None where nobody wants it any more. The bytes are held by what is loaded.

        Raises:
            ModelLoadFailed: nothing is held.
        """
        id = entry.available.id
        try:
            return await self._load(entry)
        except TenutoError:
            raise
        except Exception as error:
            logger.exception("the model %s cannot be loaded", id)
            raise ModelLoadFailed(f"{id} cannot be loaded: internal error; the server's log has the details") from error

    async def _load(self, entry: Entry) -> Loaded | None:
        entry.doing = "it is looked for"
        prepared = await self._loads.prepare(entry.available, self._accountant.budget)
        entry.doing = FOR_ROOM
        claim = self._room.claim(entry, prepared.nbytes)
        try:
            await claim.granted.wait()
            if claim.is_withdrawn:
                return None
            entry.doing = "it is read into memory"
            async with self._reading:
                loaded = await self._loads.load(prepared, self._count)
        except BaseException:
            self._room.withdraw(entry)
            self._give(claim)
            raise
        self._accountant.free(claim)
        if not self._accountant.fits(loaded.nbytes):
            with anyio.CancelScope(shield=True):
                await loaded.stop()
            self._room.arrange()
            raise ModelLoadFailed(
                f"{entry.available.id} takes {loaded.nbytes} bytes, where {claim.nbytes} were planned, and the budget"
                " of all models (--model-memory) has no room for that now"
            )
        self._accountant.take(loaded, loaded.nbytes)
        self._count += 1
        self._room.arrange()
        return loaded

    async def free(self, loaded: Loaded) -> None:
        """Wait until nobody uses a version, which takes nothing new, and free it."""
        uses, unused = loaded.model.uses, anyio.Event()
        uses.changed = unused.set
        if uses.count:
            await unused.wait()
        with anyio.CancelScope(shield=True):
            await loaded.stop()
        self._count -= 1
        for _ in range(int(FREED_S / _POLL_S)):
            if loaded.is_freed():
                return
            await anyio.sleep(_POLL_S)
        logger.warning("something still holds the weights of %s", loaded.model.id)

    def give(self, loaded: Loaded) -> None:
        """What a version held is free for others."""
        self._give(loaded)

    def _give(self, holder: object) -> None:
        self._accountant.free(holder)
        self._room.arrange()
