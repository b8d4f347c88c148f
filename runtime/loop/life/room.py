"""Room for models: claims of loads on the budget, granted in order, and which models give way for them. No task."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import anyio

from tenuto.errors import ModelLoadFailed
from tenuto.runtime.loop.life.accountant import NOTHING, Accountant, Holding, together
from tenuto.runtime.loop.life.entry import Entry
from tenuto.runtime.loop.life.loading import Memory
from tenuto.runtime.loop.life.states import ModelState

FAIR_S = 1.0
"""How long a load waits for a model that nobody uses. After that one that is in use takes nothing new until it has made
room: else a model that is always in use would keep another out for ever."""


@dataclass(eq=False, slots=True)
class Claim:
    """What a load wants of the budget. It is `granted` when that is held for it, or nobody wants it any more."""

    entry: Entry
    holding: Holding
    granted: anyio.Event = field(default_factory=anyio.Event)
    is_withdrawn: bool = False
    since: float = field(default_factory=time.monotonic)


class Room:
    """Event-loop thread only. `unload` begins to unload a model, which gives its bytes back when it is done."""

    def __init__(self, accountant: Accountant, entries: Callable[[], Iterable[Entry]], unload: Callable[[Entry], None]):
        self._accountant, self._entries, self._unload = accountant, entries, unload
        self._claims: deque[Claim] = deque()

    def claim(self, entry: Entry, holding: Holding) -> Claim:
        """Claim so much for a load, beside the present version where there is one.

        Raises:
            ModelLoadFailed: it would not fit if everything else that can go had gone.
        """
        budget, present = self._accountant.budget, self._held(entry)
        stay = [one for one in self._entries() if one.is_pinned and one is not entry]
        pinned = together(self._holding(one) for one in stay)
        least = together([holding, *(self._holding(one) for one in (entry, *stay))])
        if budget is not None and least > budget:
            both = f" beside the version before, which holds {present}" if present else ""
            others = f", of which pinned models hold {pinned}" if pinned else ""
            raise ModelLoadFailed(
                f"{entry.available.id} takes up to {holding.nbytes} bytes with its caches{both}, and the budget of all"
                f" models (--model-memory) is {budget}{others}; raise it, or lower --cache-bytes, --host-cache-bytes,"
                " --slots or --context"
            )
        claim = Claim(entry, holding)
        self._claims.append(claim)
        self.arrange()
        return claim

    def withdraw(self, entry: Entry) -> bool:
        """Nobody wants a model any more; True where its load still waited for room."""
        for claim in [one for one in self._claims if one.entry is entry]:
            self._claims.remove(claim)
            claim.is_withdrawn = True
            claim.granted.set()
            self.arrange()
            return True
        return False

    def arrange(self) -> None:
        """Grant what fits, in order, and begin to make room for what does not."""
        while self._claims:
            claim = self._claims[0]
            if not self._accountant.fits(claim.holding):
                self._make(claim)
                return
            self._claims.popleft()
            self._accountant.take(claim, claim.holding)
            claim.granted.set()

    def told(self) -> str:
        """Why a load waits, in words and numbers."""
        used, budget = self._accountant.used, self._accountant.budget
        needed = f"it takes {self._claims[0].holding.nbytes} bytes, and " if self._claims else ""
        users = [f"{one.available.id} with {one.in_use} requests" for one in self._entries() if one.in_use]
        return f"{needed}{used} of {budget} are held; in use: {', '.join(users) or 'none'}"

    def _make(self, claim: Claim) -> None:
        """Let models give way: those that nobody uses, the one used longest ago first, and where that is not enough
        those whose next version waits for room itself; then, after a while, versions that are kept for runs that wait,
        and models in use."""
        going = set(self._on_its_way())

        def is_enough() -> bool:
            return self._accountant.fits(claim.holding, going)

        loaded = [one for one in self._entries() if one.may_go]
        waiting = [one.entry for one in self._claims if one is not claim and one.entry.may_go_before_its_next]
        idle = sorted((one for one in loaded if not one.in_use), key=lambda one: one.last_used)
        for one in (*idle, *(one for one in waiting if not one.in_use)):
            if is_enough():
                return
            going.update(_memory(one))
            self._unload(one)
        now = time.monotonic()
        if now - claim.since < FAIR_S:
            return
        finishing = ((entry, old) for entry in self._entries() for old in entry.finishing)
        for entry, old in [*finishing]:
            if is_enough():
                return
            going.add(old.memory)
            old.model.uses.closed = entry.available.id
        # Who has just got a model has not yet begun to use it.
        busy = [one for one in loaded if one.in_use and now - one.since >= FAIR_S]
        for one in sorted(busy, key=lambda one: one.since):
            if is_enough():
                return
            going.update(_memory(one))
            self._unload(one)

    def _on_its_way(self) -> Iterator[Memory]:
        """What comes free by itself."""
        for one in self._entries():
            yield from _memory(one) if one.state is ModelState.UNLOADING else ()
            yield from one.leaving
            yield from (old.memory for old in one.retired if old not in one.finishing)

    def _held(self, entry: Entry) -> int:
        return self._holding(entry).nbytes

    def _holding(self, entry: Entry) -> Holding:
        return NOTHING if entry.loaded is None else entry.loaded.memory.holding


def _memory(entry: Entry) -> tuple[Memory, ...]:
    return () if entry.loaded is None else (entry.loaded.memory,)
