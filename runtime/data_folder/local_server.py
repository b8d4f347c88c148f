"""Finding the server that owns a data folder, and starting one where none lives. For commands that are its clients."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from tenuto.errors import ServerUnreachable
from tenuto.runtime.data_folder.ownership import Owner, read_owner

LOG_NAME = "serve.log"

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5


class LocalServer:
    """The server that owns a data folder: the one that lives, or one that is started where none does.

    `arguments` are those of the `tenuto serve` that is started; it gets `start_s` seconds, for the models to load. It
    is detached, and stays when this process ends.
    """

    def __init__(self, data_dir: Path, arguments: Sequence[str], start_s: float) -> None:
        self._data_dir, self._arguments, self._start_s = data_dir, tuple(arguments), start_s
        self._child: subprocess.Popen[bytes] | None = None

    async def owner(self) -> Owner:
        """The owner, ready for requests: its `url` is set.

        Raises:
            ConfigurationError: the data folder cannot be used.
            ServerUnreachable: a server could not be started, or was not ready in time.
        """
        owner = read_owner(self._data_dir)
        if owner is not None and owner.url is not None:
            return owner
        with anyio.move_on_after(self._start_s):
            return await self._started()
        raise ServerUnreachable(f"the server was not ready within {self._start_s:g} s; {self._log_hint()}")

    async def _started(self) -> Owner:
        """Wait for an owner. Others may start one at the same time: all but one of those give up."""
        wait = _SHORTEST_WAIT_S
        while True:
            owner = read_owner(self._data_dir)
            if owner is not None and owner.url is not None:
                return owner
            if owner is None:
                self._ensure_child()
            await anyio.sleep(wait)
            wait = min(wait * 1.5, _LONGEST_WAIT_S)

    def _ensure_child(self) -> None:
        """Nobody owns the folder: start a server, unless ours is on its way. One that gives up ends the wait."""
        if self._child is None:
            self._child = self._start()
        elif self._child.poll() is not None:
            code, self._child = self._child.returncode, None
            raise ServerUnreachable(f"the server ended with code {code}; {self._log_hint()}")

    def _start(self) -> subprocess.Popen[bytes]:
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(self._data_dir / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return subprocess.Popen(
                # -P: a folder of the user's own called tenuto must not stand in for us.
                [sys.executable, "-P", "-m", "tenuto", "serve", *self._arguments, "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)

    def _log_hint(self) -> str:
        """Where the log is, and what it says last."""
        path = self._data_dir / LOG_NAME
        try:
            lines = path.read_text(errors="replace").split("\n")
        except OSError:
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return f"its log, {path}, ends with: {last[-500:]}"
