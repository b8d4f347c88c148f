"""Servers that are forked from a process which has imported the runtime already: importing is most of a server's start.

What is forked becomes `python -m tenuto ...` with the environment, folder and files that it is given. The file is also
the program of the process that is forked from; it has one thread, and has read nothing and opened nothing.
"""

import atexit
import gc
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

POSSIBLE = sys.platform == "linux"
"""Elsewhere the system's own libraries do not live through a fork."""
START_S = 60.0


class Forked:
    """What subprocess.Popen would be to the server."""

    def __init__(self, arguments: Sequence[str], *, stderr: int, env: Mapping[str, str], cwd: Path) -> None:
        read, stdout = os.pipe()
        self._report, report = os.pipe()
        try:
            Forker.one().fork((tuple(arguments), dict(env), str(cwd)), [stdout, stderr, report])
        finally:
            os.close(stdout)
            os.close(report)
        self.stdout: IO[str] = os.fdopen(read)
        self._lines = b""
        self._code: int | None = None
        self._read(lines=1, seconds=START_S)
        self.pid = int(self._lines)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("tenuto", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self._code is None and self._read(lines=2, seconds=seconds):
            self._code = int(self._lines.split()[1])
            os.close(self._report)
        return self._code

    def _read(self, *, lines: int, seconds: float | None) -> bool:
        """Read the report: a line with the id, and one with the exit code. False: it has not come in time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._report, selectors.EVENT_READ)
            while self._lines.count(b"\n") < lines:
                if not selector.select(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    return False
                piece = os.read(self._report, 64)
                assert piece, "the process that servers are forked from has ended"
                self._lines += piece
        return True


class Forker:
    """The process that is forked from; one for each process of tests."""

    _lock = threading.Lock()
    _one: "Forker | None" = None

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._orders = Connection(os.dup(self._socket.fileno()))
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy would start threads as it is imported
        )
        theirs.close()
        atexit.register(self._end)

    @classmethod
    def one(cls) -> "Forker":
        """Start it, the first time."""
        with cls._lock:
            cls._one = cls._one or Forker()
            return cls._one

    def fork(self, order: "Order", files: list[int]) -> None:
        """Let it fork."""
        with self._lock:
            self._orders.send(order)
            socket.send_fds(self._socket, [b"f"], files)

    def _end(self) -> None:
        self._orders.close()
        self._socket.close()
        self._process.wait(10)


Order = tuple[tuple[str, ...], dict[str, str], str]
"""Arguments, environment and folder of what is forked."""


def await_order(sock: socket.socket) -> Order | None:
    """Fork for each order: the fork returns it. Once nobody is left to give one: None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = Connection(os.dup(sock.fileno()))
    while True:
        try:
            order: Order = orders.recv()
        except EOFError:
            return None
        _, files, _, _ = socket.recv_fds(sock, 1, 3)
        if os.fork() == 0:
            orders.close()
            sock.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(*files)
            return order
        for file in files:
            os.close(file)


def become(stdout: int, stderr: int, report: int) -> None:
    """Fork once more: the new process goes on with these files, and this one stays to report its id and its end."""
    pid = os.fork()
    if pid == 0:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for file in (stdout, stderr, report):
            os.close(file)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, report)
    os.closerange(report + 1, report + 16)
    os.write(report, f"{pid}\n".encode())
    os.write(report, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    gc.disable()
    import tenuto.runtime.serve  # noqa: F401  (what is imported here no fork has to import)

    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1
    if given := await_order(socket.socket(fileno=int(sys.argv[1]))):
        arguments, environment, folder = given
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = arguments
        runpy.run_module("tenuto", run_name="__main__", alter_sys=True)
