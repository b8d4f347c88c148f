"""An event loop in virtual time on which a seed decides, at every await, who runs next. One thread, no selector."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from heapq import heappop
from itertools import count
from typing import Any

PATIENCE = 400_000
"""Steps after which a history counts as one that never comes to rest."""


class Standstill(Exception):
    """Nothing can happen any more, and somebody waits; or things happen without end."""


@dataclass(eq=False)
class Process:
    """What dies together. Callbacks and tasks belong to the process in whose context they were made."""

    name: str
    dead: bool = False
    tasks: list["Task"] = field(default_factory=list)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Task(asyncio.Task[Any]):
    """A task with a number, by which it can be told from others in every replay."""

    number = 0


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time. Of the tasks that could go on, `chance` picks one; plain callbacks keep their order,
    which asyncio promises. Time passes only when nobody can go on.

    `haste` is how likely the task that could go on first is to go on, where 0 leaves all to chance.
    """

    def __init__(self, chance: random.Random, haste: float) -> None:
        super().__init__()
        self.steps = 0
        self.step_s = 0.0
        """How long the step takes that stands for another thread's, while it is made."""
        self.errors: list[dict[str, Any]] = []
        self._chance, self._haste = chance, haste
        self._now = self._heard = 0.0
        self._numbers = count(1)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(lambda _, details: self.errors.append(details))

    def time(self) -> float:
        """The virtual time, in seconds since the history began."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Somebody has kept the only thread for so long."""
        self._now += seconds

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """What another thread would say: heard a little later, or when its present step is over, and in order."""
        self._check_closed()  # type: ignore[attr-defined]
        self._heard = max(self._heard + 1e-9, self._now + self.step_s + self._chance.random() * 0.001)
        return self.call_at(self._heard, callback, *args, context=context)

    def within(self, process: Process | None, work: Coroutine[Any, Any, Any]) -> Task:
        """A task of that process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(work, context=context)  # type: ignore[return-value]

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> Task:
        task = Task(work, loop=loop, **more)
        task.number = next(self._numbers)
        context = more.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def _write_to_self(self) -> None:
        """There is no selector to be woken."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        self._move_due()
        if not ready:
            self._move_time()
        self.steps += 1
        if self.steps > PATIENCE:
            raise Standstill("the history does not come to rest")
        handle = self._take(ready)
        if _lives(handle):
            handle._run()

    def _move_time(self) -> None:
        """Nobody can go on before the next timer."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and not _lives(scheduled[0]):
            heappop(scheduled)._scheduled = False
        if not scheduled:
            raise Standstill("nothing can happen any more")
        self._now = scheduled[0]._when
        self._move_due()

    def _move_due(self) -> None:
        scheduled, ready = self._scheduled, self._ready  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._when <= self._now:
            handle = heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)

    def _take(self, ready: Any) -> asyncio.Handle:
        """One of the tasks' steps, or the oldest plain callback."""
        if len(ready) == 1:
            return ready.popleft()  # type: ignore[no-any-return]
        choices: list[tuple[int, int]] = []
        for place, handle in enumerate(ready):
            task = getattr(handle._callback, "__self__", None)
            if isinstance(task, Task):
                choices.append((task.number, place))
            elif not choices or choices[0][0]:
                choices.insert(0, (0, place))
        choices.sort()  # by number, so that the order in which a set was walked decides nothing
        hasty = self._chance.random() < self._haste
        place = choices[0 if hasty else self._chance.randrange(len(choices))][1]
        handle = ready[place]
        del ready[place]
        return handle  # type: ignore[no-any-return]


def _lives(handle: asyncio.Handle) -> bool:
    process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
    return not (handle.cancelled() or (process is not None and process.dead))
