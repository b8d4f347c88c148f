"""One version of a model: its load, within the budget, and its end, when nobody uses it any more. No table."""

import gc
import logging
import traceback

import anyio

from tenuto.errors import ModelLoadFailed, TenutoError
from tenuto.runtime.loop.life.accountant import Accountant
from tenuto.runtime.loop.life.entry import Entry
from tenuto.runtime.loop.life.loading import Available, Loaded, Loads, Memory
from tenuto.runtime.loop.life.room import Claim, Room
from tenuto.runtime.loop.life.states import ModelState
from tenuto.runtime.loop.uses import Uses

logger = logging.getLogger(__name__)

FREED_S = 10.0
"""How long weights may be held by requests that read something with them, after the engine has ended."""
MOST_READING = 2
"""How many models are read into memory at a time."""
FOR_ROOM = "it waits for room"
_POLL_S, _COLLECTED_AFTER = 0.02, 5


class Versions:
    """Loads and frees. Event-loop thread only."""

    def __init__(self, loads: Loads, accountant: Accountant, room: Room) -> None:
        self._loads, self._accountant, self._room = loads, accountant, room
        self._reading = anyio.CapacityLimiter(MOST_READING)
        self._count = 0

    async def load(self, entry: Entry, available: Available) -> Loaded | None:
        """Load a version of a model; None where nobody wants it any more. The bytes are held by what is loaded.

        Raises:
            ModelLoadFailed: nothing is held.
        """
        try:
            return await self._load(entry, available)
        except ModelLoadFailed as error:
            _let_go(error)
            raise
        except TenutoError as error:
            _let_go(error)
            raise ModelLoadFailed(str(error)) from error
        except Exception as error:
            logger.exception("the model %s cannot be loaded", available.id)
            _let_go(error)
            raise ModelLoadFailed(
                f"{available.id} cannot be loaded: internal error; the server's log has the details"
            ) from error
        finally:
            entry.doing = ""

    async def _load(self, entry: Entry, available: Available) -> Loaded | None:
        entry.doing = "it is looked for"
        prepared = await self._loads.prepare(available, self._accountant.budget)
        if not entry.is_wanted:
            return None
        entry.doing = FOR_ROOM
        claim = self._room.claim(entry, prepared.holding)
        try:
            await claim.granted.wait()
            if claim.is_withdrawn:
                return None
            while entry.state is ModelState.UNLOADING:  # the version before has given way, and is not freed yet
                await entry.changed.wait()
            entry.doing = "it is read into memory"
            async with self._reading:
                loaded = await self._loads.load(prepared, self._count)
        except BaseException:
            self._room.withdraw(entry)
            self._give(claim)
            raise
        memory, wrong = loaded.memory, self._unfit(entry, claim, loaded)
        if wrong is None:
            self._accountant.free(claim)
            self._accountant.take(memory, memory.holding)
            self._count += 1
            self._room.arrange()
            return loaded
        del loaded  # its weights go with the last who holds it
        await self._end(entry, memory)
        self._give(claim)
        raise ModelLoadFailed(wrong)

    def _unfit(self, entry: Entry, claim: Claim, loaded: Loaded) -> str | None:
        """What keeps a version from taking its place, in words."""
        id, nbytes = loaded.available.id, loaded.memory.nbytes
        if not self._accountant.fits(loaded.memory.holding, without=(claim,)):
            return (
                f"{id} takes {nbytes} bytes, where {claim.holding.nbytes} were planned, and the budget of all models"
                " (--model-memory) has no room for that now"
            )
        makes = entry.available.kind if entry.loaded is None else entry.loaded.model.kind
        if entry.is_swapping and loaded.model.kind != makes:
            return f"{loaded.available.source} makes {loaded.model.kind}, and {id} makes {makes}"
        return None

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
        for poll in range(int(FREED_S / _POLL_S)):
            if memory.is_freed():
                return
            if poll == _COLLECTED_AFTER:  # the error of a request that was refused is a ring, and holds what it read
                gc.collect()
            await anyio.sleep(_POLL_S)
        logger.warning("something still holds the weights of %s", entry.available.id)

    def _give(self, holder: object) -> None:
        self._accountant.free(holder)
        self._room.arrange()


def _let_go(error: BaseException) -> None:
    """An error is kept for as long as others are to hear it; what was half made where it was raised is not."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


def anew(error: TenutoError) -> TenutoError:
    """One error for each who is told: an error that is raised holds what its reader held, for as long as it is kept."""
    return type(error)(str(error))
