"""A run's events as those who follow it read them: numbered over its whole life, and waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from tenuto.runtime.loop.event_log import EventLog
from tenuto.runtime.loop.events import RunEvent

_NUMBERS_A_SECOND = 1_000_000
"""More than a run can tell, so that those that were told end before those that are told again begin."""
AT_ONCE = 64
"""So many events at most are told together, so that nobody who has missed many holds up the event loop."""


class EventFeed:
    """Tells events by their numbers to everybody who asks, each at its own pace. Event-loop thread only.

    A run that is read from the store has kept fewer events than it told. They get numbers beyond all that were told
    before (`renumber`), so that a number names one event for ever. While the feed is held, what is appended is told
    to nobody before `tell`.
    """

    def __init__(self) -> None:
        self._log = EventLog()
        self._offset = 0
        """So many numbers were taken before."""
        self._held: int | None = None
        """While it is held: so many of the events are told."""
        self._waiting: list[asyncio.Future[None]] = []
        """Those who wait for the next `wake`: mostly one for each token that is told, or nobody."""

    def __len__(self) -> int:
        """How many events there are; the next but one has the place after it."""
        return len(self._log)

    @property
    def told(self) -> int:
        """How many of them are told to those who follow."""
        return len(self) if self._held is None else self._held

    @property
    def nbytes(self) -> int:
        """About what the events take in memory."""
        return self._log.nbytes

    def renumber(self, at: float, events: Iterable[RunEvent]) -> None:
        """Begin with these events, numbered after all that can have been told by a time in seconds; nothing has been
        told yet."""
        self._offset = int(at * _NUMBERS_A_SECOND)
        for event in events:
            self._log.append(event)

    def append(self, event: RunEvent) -> None:
        """Add an event. Who follows sees it with the next `wake`, or once it is told."""
        self._log.append(event)

    def between(self, start: int, end: int) -> list[RunEvent]:
        """The events from one place up to another."""
        return [self._log.at(place + 1) for place in range(start, end)]

    def hold(self) -> None:
        """From now on tell events by `tell` alone."""
        self._held = self.told

    def tell(self, end: int) -> None:
        """Tell the events up to a place, and let everybody who waits look again."""
        if self._held is not None:
            self._held = max(self._held, end)
        self.wake()

    def release(self) -> None:
        """Tell all that there is and will be."""
        self._held = None

    def pack(self) -> None:
        """Nothing more comes for a while: let what there is take little room."""
        self._log.pack()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def changed(self) -> None:
        """Return with the next `wake`."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        await told

    def was_told_before(self, number: int) -> bool:
        """Whether who has seen the events up to this number is told them again, as far as they were kept."""
        return 0 < number < self._offset

    def place_after(self, number: int) -> int:
        """The place in the feed where who has seen the events up to this number goes on.

        Of events that are told again the last is told to everybody: it says how the run stands.
        """
        place = min(max(number - self._offset, 0), self.told)
        return place - 1 if self._offset and place and place == self.told else place

    async def follow(self, place: int, end: Callable[[], int | None]) -> AsyncIterator[tuple[int, RunEvent]]:
        """The events with their numbers from a place on, until `end` gives the place where they end."""
        async for events in self.batches(place, end):
            for event in events:
                place += 1
                yield self._offset + place, event

    async def batches(self, place: int, end: Callable[[], int | None]) -> AsyncIterator[list[RunEvent]]:
        """The same events without their numbers, those together that are there together: what has come by one step of
        the model mostly, and more where whoever reads is slower."""
        while True:
            until = end()
            told = min(self.told if until is None else until, place + AT_ONCE)
            if place < told:
                events, place = self.between(place, told), told
                yield events
            elif until is not None:
                return
            else:
                await self.changed()
