"""One version of a model: its load, within the budget, and its end, when nobody uses it any more. No table."""

import logging
import traceback

import anyio

from tenuto.errors import ModelLoadFailed, TenutoError
from tenuto.runtime.loop.life.accountant import Accountant
from tenuto.runtime.loop.life.entry import Entry
from tenuto.runtime.loop.life.loading import Loaded, Loads, Memory
from tenuto.runtime.loop.life.room import Room
from tenuto.runtime.loop.uses import Uses

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

    async def load(self, entry: Entry, beside: Entry | None = None) -> Loaded | None:
        """Load what an entry says; None where nobody wants it any more. The bytes are held by what is loaded.

        `beside`: what it is to replace, which stays until then.

        Raises:
            ModelLoadFailed: nothing is held.
        """
        id = entry.available.id
        try:
            return await self._load(entry, beside)
        except TenutoError as error:
            _let_go(error)
            raise
        except Exception as error:
            logger.exception("the model %s cannot be loaded", id)
            _let_go(error)
            raise ModelLoadFailed(f"{id} cannot be loaded: internal error; the server's log has the details") from error

    async def _load(self, entry: Entry, beside: Entry | None) -> Loaded | None:
        entry.doing = "it is looked for"
        prepared = await self._loads.prepare(entry.available, self._accountant.budget)
        entry.doing = FOR_ROOM
        claim = self._room.claim(entry, prepared.nbytes, 0 if beside is None else beside.stays)
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
        memory = loaded.memory
        if self._accountant.fits(memory.nbytes - claim.nbytes):
            self._accountant.free(claim)
            self._accountant.take(memory, memory.nbytes)
            self._count += 1
            self._room.arrange()
            return loaded
        del loaded  # its weights go with the last who holds it
        await self._end(entry, memory)
        self._give(claim)
        raise ModelLoadFailed(
            f"{entry.available.id} takes {memory.nbytes} bytes, where {claim.nbytes} were planned, and the budget"
            " of all models (--model-memory) has no room for that now"
        )

    async def unused(self, uses: Uses) -> None:
        """Wait until nobody uses a version, which takes nothing new."""
        unused = anyio.Event()
        uses.changed = unused.set
        if uses.count:
            await unused.wait()

    async def free(self, entry: Entry, memory: Memory) -> None:
        """Free a version that nobody uses. Whoever calls this must hold nothing else of it."""
        entry.leave(memory)
        self._count -= 1
        await self._end(entry, memory)
        entry.leaving.remove(memory)
        entry.unloads += 1
        self._accountant.free(memory)

    async def _end(self, entry: Entry, memory: Memory) -> None:
        with anyio.CancelScope(shield=True):
            await memory.stop()
        for _ in range(int(FREED_S / _POLL_S)):
            if memory.is_freed():
                return
            await anyio.sleep(_POLL_S)
        logger.warning("something still holds the weights of %s", entry.available.id)

    def _give(self, holder: object) -> None:
        self._accountant.free(holder)
        self._room.arrange()


def _let_go(error: BaseException | None) -> None:
    """An error is kept for as long as others are to hear it; what was half made where it was raised is not."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
