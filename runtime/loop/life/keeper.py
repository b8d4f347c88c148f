"""The owner of all models: loads one when it is asked for, unloads it when it is idle or others need its room.

A load is one task, whoever waits for it; so is an unload. What they find and leave is in the table, and only here does
a model come into another state. A model is unloaded under nobody: it takes nothing new, and is freed when the last who
uses it has given it back.
"""

import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio

from tenuto.errors import Conflict, InvalidRequest, NoRoomForModel, ShuttingDown, TenutoError
from tenuto.runtime.loop.life.entry import Entry, Waiter, idle
from tenuto.runtime.loop.life.loading import Adapting, Available, Catalogue, LifeSettings, Loaded, Loads, Memory
from tenuto.runtime.loop.life.room import Room
from tenuto.runtime.loop.life.states import ModelState, ModelTrigger
from tenuto.runtime.loop.life.table import Table
from tenuto.runtime.loop.life.versions import FOR_ROOM, Versions, anew
from tenuto.runtime.loop.model import AnyModel
from tenuto.runtime.loop.shelf import LoadOptions, Standing
from tenuto.runtime.loop.uses import Uses
from tenuto.sessions.shares import Shares

logger = logging.getLogger(__name__)

TICK_S = 0.5
CLOSE_S = 2.5
"""For all engines together to end with the server, within what the watchdog leaves it beyond its drain."""
MOST_FINISHING = 2
"""How many versions of a model are kept for runs that wait. Those of older ones go on with the present one."""
RETRY_S = 5.0
"""A load that failed is tried again by requests that come after so long; those before hear what went wrong."""


class Keeper(Table):
    """A `Shelf`. Event-loop thread only, but for what `Table` has. A context manager: leaving it frees all models."""

    def __init__(
        self,
        loads: Loads,
        available: Sequence[Available],
        settings: LifeSettings | None = None,
        catalogue: Catalogue | None = None,
        adapters: Adapting | None = None,
    ) -> None:
        settings = settings or LifeSettings()
        super().__init__(available, settings, catalogue, adapters)
        self._room = Room(self.accountant, self._entries.values, self._unload)
        self._versions = Versions(loads, self.accountant, self._room)
        self._places: Shares[Waiter] = Shares(
            "the queue of requests that wait for a model", settings.most_waiting, lambda _: False
        )
        self._is_closed = self._is_starting = False

    async def __aenter__(self) -> Self:
        """Take requests."""
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._tend)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free all. A load that is under way is given up; who waits is refused."""
        self._is_closed = True
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):  # goes on as it is, not in a group: nothing here can have caused it
            kind = error = trace = None
        for entry in self._entries.values():
            self._refuse(entry, ShuttingDown("the server is stopping"))
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    for entry in self._entries.values():
                        for memory in entry.memory():
                            group.start_soon(memory.stop, CLOSE_S)

    # Commands.

    async def begin(self) -> None:
        """Load what was named at the start, one after the other, before there are requests. From then on it is known
        what each makes. Raises what a load raises."""
        self._is_starting = True
        for entry in list(self._entries.values()):
            model = await self.loaded_for(entry.available.id, _COMMAND, math.inf)
            model.uses.give_back()
            entry.available = replace(entry.available, kind=model.kind)
        self._is_starting = False

    async def loaded_for(self, id: str, principal: str, wait_s: float | None = None) -> AnyModel:
        """A model once it is loaded, in use until `uses.give_back`."""
        entry = self._entry(id)
        if entry.state is ModelState.LOADED and entry.loaded is not None:
            entry.loaded.model.uses.take()
            return entry.loaded.model
        now = time.monotonic()
        if entry.state is ModelState.FAILED and entry.error is not None and now - entry.since < RETRY_S:
            raise anew(entry.error)
        if self._is_closed:
            raise ShuttingDown("the server is stopping")
        waiter = Waiter()
        self._places.admit(waiter, principal, now, RETRY_S)
        entry.waiters.append(waiter)
        try:
            self._begin(entry)
            await self._done(waiter, entry, self.settings.wait_s if wait_s is None else wait_s)
        except BaseException:
            if waiter.model is not None:
                waiter.model.uses.give_back()
            raise
        finally:
            self._places.remove(waiter)
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)
                self._nobody(entry)
        assert waiter.model is not None, "it is done"
        return waiter.model

    async def _done(self, waiter: Waiter, entry: Entry, wait_s: float) -> None:
        """Wait for the end of a load. Raises what ended it, and NoRoomForModel where it lasts for too long."""
        with anyio.move_on_after(wait_s):
            await waiter.done.wait()
        if waiter.error is not None:
            raise anew(waiter.error)
        if not waiter.done.is_set():
            why = self._room.told()
            if entry.doing not in ("", FOR_ROOM):
                why = f"{entry.doing} for longer than {wait_s:g} s"
            raise NoRoomForModel(f"the room for the model {entry.available.id!r} ({why})", RETRY_S)

    async def load(self, id: str, principal: str, options: LoadOptions) -> Standing:
        """Load a model by command; what keeps it changes where the options say so.

        Raises:
            InvalidRequest: a source is given, and it is no swap.
        """
        if options.source is not None and not options.is_swap:
            raise InvalidRequest("source: only what replaces a model has another source; set swap", "source")
        entry = self._entry(id)
        if options.is_swap:
            await self.swap(id, options.source or entry.available.source)
        else:
            if entry.state is ModelState.FAILED:
                entry.since = -RETRY_S  # who asks by command wants it tried now
            (await self.loaded_for(id, principal)).uses.give_back()
        entry.is_pinned = entry.is_pinned if options.pin is None else options.pin
        entry.keep_s = entry.keep_s if options.keep_s is None else options.keep_s
        return self.standing(id)

    async def unload(self, id: str, wait_s: float) -> Standing:
        """Unload a model by command; where it is in use, when nobody uses it any more. Returns when it is freed, or
        after so long.

        Raises:
            Conflict: it is being loaded.
        """
        entry = self._entry(id)
        if entry.state is ModelState.LOADING or entry.is_swapping:
            raise Conflict(f"the model {id!r} is being loaded; unload it when that is done")
        if entry.state is ModelState.LOADED:
            self._unload(entry)
        with anyio.move_on_after(wait_s):
            if entry.state is ModelState.UNLOADING:
                await entry.changed.wait()
        return self.standing(id)

    async def swap(self, id: str, source: str) -> None:
        """Load a version of a model beside the present one, and let new requests go to it. A failed load changes
        nothing. What adapters have made of the model and is loaded is replaced after it, as far as they fit.

        The one before stays for those who use it, and is freed after them.

        Raises:
            Conflict: it is being loaded or unloaded.
            ModelLoadFailed: it cannot be loaded, or makes something else; NoRoomForModel: there was no room for both.
        """
        entry = self._entry(id)
        if entry.is_swapping or entry.state in (ModelState.LOADING, ModelState.UNLOADING):
            raise Conflict(
                f"the model {id!r} is {'being replaced' if entry.is_swapping else entry.state}; try again when that is"
                " done"
            )
        new = replace(entry.available, source=source, version="" if source == entry.named else source)
        waiter = Waiter()
        self._start(partial(self._swap, entry, new, waiter))
        entry.is_swapping = True
        if entry.state is not ModelState.LOADED:
            entry.on(ModelTrigger.LOAD)
        try:
            await self._done(waiter, entry, self.settings.wait_s)
        except BaseException:
            self._room.withdraw(entry)
            raise
        for other in [one for one in self._entries.values() if one.available.base == id]:
            if other.may_be_replaced:
                await self._take_along(other, entry.available)

    async def _take_along(self, other: Entry, base: Available) -> None:
        try:
            await self.swap(other.available.id, base.source)
        except TenutoError as error:
            logger.warning("%s stays on the version before of %s: %s", other.available.id, base.id, error)
        else:
            other.follow(replace(other.available, version=base.version))

    async def _swap(self, entry: Entry, new: Available, waiter: Waiter) -> None:
        loaded: Loaded | None = None
        try:
            loaded = await self._versions.load(entry, new)
        except TenutoError as error:
            waiter.error = error
        finally:
            entry.is_swapping = False
            waiter.done.set()
        if loaded is None:
            if entry.state is ModelState.LOADING:
                self._abandon(entry)
        elif entry.loaded is None:
            self._ready(entry, loaded)
        else:
            self._replace(entry, loaded, entry.loaded)
        self._room.arrange()

    def keep(self, id: str, keep_s: float | None) -> None:
        """From now on a model stays loaded for so long without use, where requests decide that; None: until its room is
        needed."""
        entry = self._entry(id)
        if not (entry.available.is_named and self.settings.named_stay):
            entry.keep_s = keep_s

    # Loads.

    def _begin(self, entry: Entry) -> None:
        if entry.state in (ModelState.AVAILABLE, ModelState.FAILED):
            entry.on(ModelTrigger.LOAD)
            entry.error = None
            self._start(partial(self._load, entry))

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_closed:
            raise ShuttingDown("the server is stopping")
        self._group.start_soon(work)

    def _nobody(self, entry: Entry) -> None:
        """One has left who waited: a load for nobody that still waits for room is given up."""
        if entry.state is ModelState.LOADING and not entry.is_wanted:
            self._room.withdraw(entry)

    async def _load(self, entry: Entry) -> None:
        try:
            loaded = await self._versions.load(entry, entry.available)
        except TenutoError as error:
            entry.error = error
            entry.on(ModelTrigger.FAIL)
            if not self._is_starting:  # else it ends the start, which tells it
                logger.warning("the model %s cannot be loaded: %s", entry.available.id, error)
            self._refuse(entry, error)
            return
        if loaded is None:
            self._abandon(entry)
        else:
            self._ready(entry, loaded)

    def _abandon(self, entry: Entry) -> None:
        entry.on(ModelTrigger.ABANDON)
        if entry.waiters:  # they came at this moment, or while a version was read that cannot be loaded
            self._begin(entry)

    def _ready(self, entry: Entry, loaded: Loaded) -> None:
        self._put(entry, loaded)
        entry.on(ModelTrigger.READY)
        waiters, entry.waiters = entry.waiters, []
        for waiter in waiters:
            loaded.model.uses.take()
            waiter.model = loaded.model
            waiter.done.set()

    def _put(self, entry: Entry, loaded: Loaded) -> None:
        """From now on this is the present version."""
        entry.loaded, entry.error = loaded, None
        entry.available = replace(loaded.available, kind=loaded.model.kind)
        entry.loads += 1
        loaded.model.uses.changed = self._room.arrange

    def _refuse(self, entry: Entry, error: TenutoError) -> None:
        waiters, entry.waiters = entry.waiters, []
        for waiter in waiters:
            waiter.error = error
            waiter.done.set()

    # Unloads.

    def _unload(self, entry: Entry) -> None:
        loaded = entry.loaded
        assert loaded is not None, "it is loaded"
        entry.on(ModelTrigger.UNLOAD)
        loaded.model.uses.closed = entry.available.id
        self._group.start_soon(self._free, entry)

    async def _free(self, entry: Entry) -> None:
        assert entry.loaded is not None, "it is loaded"
        await self._versions.unused(entry.loaded.model.uses)
        await self._versions.free(entry, entry.loaded.memory)
        entry.on(ModelTrigger.FREED)
        if entry.is_swapping:
            entry.on(ModelTrigger.LOAD)
        self._room.arrange()
        if entry.waiters:
            self._begin(entry)

    def _replace(self, entry: Entry, loaded: Loaded, old: Loaded) -> None:
        self._put(entry, loaded)
        for finishing in entry.finishing[: -MOST_FINISHING + 1 or None]:
            finishing.model.uses.closed = entry.available.id
        entry.retired.append(old)
        self._group.start_soon(self._retire, entry, old.model.uses, old.memory)

    async def _retire(self, entry: Entry, uses: Uses, memory: Memory) -> None:
        """Keep a version as long as runs go on with it and there is room, then free it."""
        for _ in range(int(self.settings.finish_s / TICK_S) if self.settings.finishes else 0):
            if not uses.waits or uses.closed is not None:
                break
            await anyio.sleep(TICK_S)
        uses.closed = entry.available.id
        await self._versions.unused(uses)
        await self._versions.free(entry, memory)
        self._room.arrange()

    async def _tend(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            now = time.monotonic()
            for entry in idle(self._entries.values(), now):
                logger.info("the model %s is idle and is unloaded", entry.available.id)
                self._unload(entry)
            self._room.arrange()


_COMMAND = "a command"
