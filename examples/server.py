"""A Tenuto server of one's own, for the examples: started by its command line, killed without mercy, started again."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

READY = "tenuto ready on "


class OwnServer:
    """`tenuto serve` on a free port and a data folder that outlives it."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self._command = [sys.executable, "-m", "tenuto", "serve", "--port", "0", "--data-dir", str(data_dir), *flags]
        self._log = data_dir.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(READY):
            raise SystemExit(f"the server did not start:\n{self._log.read_text()[-2000:]}")
        self.url = line.removeprefix(READY).strip()

    @property
    def process_id(self) -> int | None:
        """Of the server; None while there is none."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """kill -9: nothing is said, nothing is flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
