"""A process of an engine as its parent holds it: started, spoken with and ended. It knows nothing of rounds."""

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import cast

import anyio
import anyio.to_thread

from tenuto.errors import ModelLoadFailed
from tenuto.runtime.engine.own_process.frames import MOST, Frames, Kind, frame
from tenuto.runtime.engine.own_process.order import OPENED, Opened, Order

logger = logging.getLogger(__name__)

CHILD = "tenuto.runtime.engine.own_process.child"
"""Not imported: it is to be read in the process alone."""
KILLED_S = 10.0
"""For the kernel to end a process that is killed."""

Hear = Callable[[Kind, bytes], None]


class NotForText(Exception):
    """The model makes vectors of texts, and has no engine of this kind."""


class BySignal(Exception):
    """The cause of a load that failed: a signal has ended its process."""


class Line(asyncio.Protocol):
    """The line to a process that has loaded its model. Event-loop thread only; freed by `close`.

    `hear` and `lost` may be set once `open` has returned, before anything is said.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._frames = Frames(MOST)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[tuple[Kind, bytes]] = self._loop.create_future()
        self.hear: Hear = lambda _kind, _payload: None
        self.lost: Callable[[], None] = lambda: None
        self.is_lost = False
        self.opened: Opened

    @classmethod
    async def open(cls, order: Order) -> "Line":
        """Start a process and let it load a model.

        Raises:
            NotForText: it makes vectors of texts.
            ModelLoadFailed: it could not, or no process could be started, or it did not come to an end in its time.
        """
        line, ours = await cls._begun(order.model)
        try:
            await line._loop.create_unix_connection(lambda: line, sock=ours)
            line.send(frame(Kind.ORDER, pickle.dumps(order)))
            with anyio.fail_after(order.seconds):
                await line._meet(order.model)
        except TimeoutError:
            await line.close()
            raise ModelLoadFailed(f"{order.model} was not loaded within {order.seconds:g} s") from None
        except BaseException:
            if line._transport is None:
                ours.close()
            await line.close()
            raise
        return line

    @classmethod
    async def _begun(cls, model: str) -> tuple["Line", socket.socket]:
        """A line whose process has been started, and our end of what connects them."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    return cls(await anyio.to_thread.run_sync(partial(_started, theirs.fileno()))), ours
                except BaseException:
                    ours.close()
                    raise
        except OSError as error:
            raise ModelLoadFailed(f"{model}: no process could be started to load it: {error}") from error

    async def _meet(self, model: str) -> None:
        kind, payload = await self._first
        if kind is Kind.REFUSED:
            raise ModelLoadFailed(payload.decode(errors="replace"))
        if kind is Kind.VECTORS:
            raise NotForText(model)
        if kind is Kind.STOP:
            how = await self.how_it_ended()
            cause = BySignal(how) if how.startswith("SIG") else None
            raise ModelLoadFailed(f"{model}: the process that loads it ended ({how})") from cause
        try:
            if kind is not Kind.OPENED:
                raise ValueError(f"{kind.name} in place of what it has loaded")
            self.opened = OPENED.validate_json(payload)
        except ValueError as error:
            raise ModelLoadFailed(f"{model}: the process that loads it tells what cannot be read") from error

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, data: bytes) -> None:
        """Send a frame. One for a process that has ended is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def break_off(self, why: str) -> None:
        """Kill a process that is not what it should be. Nothing more is heard of it but that it is lost."""
        logger.error("the process %d is killed: it sent %s", self._process.pid, why)
        self.hear = lambda _kind, _payload: None
        self._process.kill()
        if self._transport is not None:
            self._transport.abort()

    async def how_it_ended(self) -> str:
        """In words. For a process that has closed its end: it is waited for, and killed where it stays."""
        code = await self._reaped()
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    async def close(self) -> None:
        """End the process now, and wait until it is gone."""
        self.hear, self.lost = (lambda _kind, _payload: None), (lambda: None)
        if self._transport is not None:
            self._transport.abort()
        self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._reaped()

    async def _reaped(self) -> int:
        def wait() -> int:
            try:
                return self._process.wait(KILLED_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                return self._process.wait(KILLED_S)

        return await anyio.to_thread.run_sync(wait)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        """Something has come. What an error in its reader says is the loop's to log, as for any callback."""
        try:
            for kind, payload in self._frames.push(data):
                if not self._first.done():
                    self._first.set_result((kind, payload))
                else:
                    self._loop.call_soon(self._pass_on, kind, payload)
        except ValueError as error:
            self.break_off(str(error))

    def _pass_on(self, kind: Kind, payload: bytes) -> None:
        self.hear(kind, payload)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it ended is asked of the kernel)
        """The process is gone, or is about to be."""
        self.is_lost = True
        if not self._first.done():
            self._first.set_result((Kind.STOP, b""))
        self._loop.call_soon(lambda: self.lost())


def _started(descriptor: int) -> "subprocess.Popen[bytes]":
    # As the interpreter finds its modules here, but for those that lie where the user happens to be.
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", CHILD, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=2,  # ours is for what programs read
        pass_fds=[descriptor],
        env={**os.environ, "PYTHONPATH": paths, "GGML_NO_BACKTRACE": "1"},
    )
