"""Programs that are forked from a process which has imported the runtime already: importing is most of their start."""

import atexit
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.e2e import through
from tests.patience import HANGS_S

POSSIBLE = sys.platform == "linux"
"""Elsewhere the system's own libraries do not live through a fork."""
START_S = HANGS_S


def program(*arguments: str) -> list[str]:
    """The command `tenuto ARGUMENTS`, for whatever starts it."""
    return _forked(*arguments) if POSSIBLE else [sys.executable, "-m", "tenuto", *arguments]


def tool_server(script: str | Path, *arguments: str) -> dict[str, Any]:
    """The command of an MCP server that is a Python program, as an entry of `mcpServers` has it.

    Signals reach the program, but limits and groups of processes do not: a test of these starts it as users do.
    """
    command, *rest = _forked(str(script), *arguments) if POSSIBLE else [sys.executable, str(script), *arguments]
    return {"command": command, "args": rest}


def _forked(*arguments: str) -> list[str]:
    return [sys.executable, "-S", "-E", through.__file__, str(Forker.one().address), *arguments]


class Forked:
    """What subprocess.Popen would be to a server."""

    def __init__(self, arguments: Sequence[str], *, stderr: int, env: Mapping[str, str], cwd: Path) -> None:
        read, stdout = os.pipe()
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            files = [stdin, stdout, stderr]
            self._report = through.order(str(Forker.one().address), arguments, dict(env), str(cwd), files)
        finally:
            os.close(stdout)
            os.close(stdin)
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
                assert piece, "the process that programs are forked from has ended"
                self._lines += piece
        return True


class Forker:
    """The process that is forked from; one for each process of tests."""

    _lock = threading.Lock()
    _one: "Forker | None" = None

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="forker-"))
        self.address = self._folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("forker.py")), str(self.address)],
            stdin=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy would start threads as it is imported
        )
        atexit.register(self._end)
        deadline = time.monotonic() + START_S
        while not self.address.exists():
            assert self._process.poll() is None, "the process that programs are forked from has not started"
            assert time.monotonic() < deadline, "the process that programs are forked from takes too long"
            time.sleep(0.01)

    @classmethod
    def one(cls) -> "Forker":
        """Start it, the first time."""
        with cls._lock:
            cls._one = cls._one or Forker()
            return cls._one

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)
