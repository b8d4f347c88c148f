"""The one thread that writes: commits that wait while a transaction runs go into the next one together."""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue

from tenuto.errors import CommitUnsettled, Overloaded, StoreFailed
from tenuto.sessions.storage.writes import Write
from tenuto.threads import Drive, Next, Thread

QUEUE_LIMIT = 10_000
"""How many commits may wait before the next is refused."""

_GROUP_LIMIT = 512
_CLOSE_TIMEOUT_S = 60

logger = logging.getLogger(__name__)

Loop = asyncio.AbstractEventLoop

Make = Callable[[], Sequence[Write]]


@dataclass(slots=True)
class _Commit:
    writes: Sequence[Write] | Make
    loop: Loop
    done: asyncio.Future[None]

    def made(self) -> Sequence[Write]:
        """The writes, made once, however often they are tried."""
        if callable(self.writes):
            self.writes = self.writes()
        return self.writes


class Writer:
    """Runs `write` in its own thread for groups of commits. `commit` on an event loop, `close` anywhere.

    `write` makes one transaction of the commits it is given. A group that fails is tried again one by one, so that a
    bad commit fails alone; one of which nobody knows what was kept is not. `drive` is what stands for the thread.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Sequence[Write]]], None],
        queue_limit: int = QUEUE_LIMIT,
        drive: Drive = Thread,
    ) -> None:
        self._write = write
        self._queue: Queue[_Commit | None] = Queue(queue_limit)
        self._closed = False
        self._said: str | None = None
        self._gate = threading.Lock()
        self._driver = drive("tenuto-store", self._work)

    async def commit(self, writes: Sequence[Write]) -> None:
        """Return when the writes are durable. Cancelling the wait does not take them back.

        Raises:
            Overloaded: too many commits wait; nothing of this one is kept.
            StoreFailed: nothing of this commit is kept.
            CommitUnsettled: nobody knows whether it was kept.
        """
        await asyncio.shield(self.begin(writes))

    def begin(self, writes: Sequence[Write] | Make) -> asyncio.Future[None]:
        """Queue the writes; the future has what becomes of them, whoever waits for it and whoever does not.

        Where there can be many, give what makes them: it is called in the writer's thread.

        It fails with StoreFailed: nothing of this commit is kept; or with CommitUnsettled: nobody knows.

        Raises:
            Overloaded: too many commits wait; nothing of this one is kept.
            StoreFailed: the store is closed.
        """
        loop = asyncio.get_running_loop()
        commit = _Commit(writes, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise StoreFailed("the store is closed")
            try:
                self._queue.put_nowait(commit)
            except Full:
                raise Overloaded("the store's queue", 1.0) from None
        self._driver.wake()
        return commit.done

    def close(self) -> None:
        """Write what is queued and end the thread. Blocking; more than once is fine."""
        with self._gate:
            first, self._closed = not self._closed, True
        if first:
            self._queue.put(None, timeout=_CLOSE_TIMEOUT_S)
            self._driver.wake()
        self._driver.join(_CLOSE_TIMEOUT_S)

    def _work(self, wait: bool) -> Next:
        """Write one group."""
        try:
            head = self._queue.get(block=wait)
        except Empty:
            return Next.IDLE
        group: list[_Commit] = []
        while head is not None:
            group.append(head)
            if len(group) == _GROUP_LIMIT:
                break
            try:
                head = self._queue.get_nowait()
            except Empty:
                break
        if group:
            self._settle(group, self._outcomes(group))
        return Next.ENDED if head is None else Next.MORE

    def _outcomes(self, group: list[_Commit]) -> list[StoreFailed | None]:
        failed = self._attempt(group)
        if failed is None:
            return [None] * len(group)
        if len(group) == 1:
            return [failed]
        if isinstance(failed, CommitUnsettled):
            return [CommitUnsettled(str(failed)) for _ in group]
        return [self._attempt([commit]) for commit in group]

    def _attempt(self, commits: Sequence[_Commit]) -> StoreFailed | None:
        # Whatever goes wrong belongs to those who wait for it; this thread must live for the others.
        try:
            self._write([commit.made() for commit in commits])
        except Exception as exc:
            said = f"the store could not write: {getattr(exc, 'orig', None) or exc}"
            if said != self._said:  # a disk that is full would fill up further with what is said of it
                logger.exception("a transaction of %d commits failed", len(commits))
            self._said = said
            failed = CommitUnsettled(said) if isinstance(exc, CommitUnsettled) else StoreFailed(said)
            failed.__cause__ = exc
            return failed
        self._said = None
        return None

    def _settle(self, group: list[_Commit], outcomes: list[StoreFailed | None]) -> None:
        """Tell every loop once what became of its commits."""
        by_loop: dict[Loop, list[tuple[asyncio.Future[None], StoreFailed | None]]] = defaultdict(list)
        for commit, outcome in zip(group, outcomes, strict=True):
            by_loop[commit.loop].append((commit.done, outcome))
        for loop, results in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, results)
            except RuntimeError:
                logger.warning("nobody is left to hear of %d commits", len(results))


def _resolve(results: list[tuple[asyncio.Future[None], StoreFailed | None]]) -> None:
    for done, failed in results:
        if done.done():
            continue
        if failed is None:
            done.set_result(None)
        else:
            done.set_exception(failed)
