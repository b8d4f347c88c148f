"""One worker process, as the event loop holds it: it does one job at a time, and is killed rather than waited for."""

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tenuto.runtime.apart import child
from tenuto.runtime.apart.child import LENGTH

START_S = 30.0


class WorkerDied(Exception):
    """The process ended in the middle of a job."""


class Worker:
    """A process that has been started. Event-loop thread only; one job at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdout is not None
        self._outcomes = BufferedByteReceiveStream(process.stdout)

    @classmethod
    async def start(cls, memory_bytes: int) -> "Worker":
        """A process that is ready for jobs.

        Raises:
            WorkerDied, TimeoutError, OSError: there is none.
        """
        # -P: a folder of the user's that is named like one of ours is not in the way.
        command = [sys.executable, "-P", "-m", child.__name__, str(memory_bytes)]
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True
        )
        worker = cls(process)
        try:
            with anyio.fail_after(START_S):
                await worker._read()
        except BaseException:
            worker.kill()
            raise
        return worker

    async def do(self, job: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
        """What a job gives or raises. After TimeoutError, WorkerDied or a cancellation the worker is of no more use.

        Raises:
            TimeoutError: it took longer.
            WorkerDied: it ended the process.
        """
        request = pickle.dumps((job, arguments, seconds))
        assert self._process.stdin is not None
        with anyio.fail_after(seconds):
            try:
                await self._process.stdin.send(LENGTH.pack(len(request)) + request)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as exc:
                raise WorkerDied(job.__name__) from exc
            answer = await self._read()
            # In a thread, which others can interrupt while objects are made.
            done, outcome = await anyio.to_thread.run_sync(pickle.loads, answer)
        if not done:
            raise outcome
        return outcome

    def kill(self) -> None:
        """End it now. Nobody waits: the event loop reaps it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """End it and wait until it is gone."""
        self.kill()
        await self._process.aclose()

    async def _read(self) -> bytes:
        try:
            (length,) = LENGTH.unpack(await self._outcomes.receive_exactly(LENGTH.size))
            return await self._outcomes.receive_exactly(length)
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, OSError) as exc:
            raise WorkerDied("the worker process has ended") from exc
