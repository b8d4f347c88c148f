"""A real server process for tests: started by its command line, read by its ready line, killed as the world kills."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.forked import POSSIBLE, Forked
from tests.patience import HANGS_S

READY = "tenuto ready on "
START_S = HANGS_S
STOP_S = HANGS_S
PROGRAM = ("-m", "tenuto")


def script(path: Path, rules: Sequence[Mapping[str, Any]] = (), **settings: Any) -> str:
    """Write a scripted model; the value for --model."""
    path.write_text(json.dumps({"rules": list(rules), **settings}))
    return f"scripted:{path}"


def environment(home: Path) -> dict[str, str]:
    """This process's environment without settings of the developer's own, in a home of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "XDG_"))}
    return {**inherited, "HOME": str(home)}


@dataclass
class Server:
    """`tenuto serve --port 0` on a data folder that outlives it. Every wait is bounded; `close` ends it for sure."""

    folder: Path
    model: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = PROGRAM
    whole: bool = False
    """Begin with a new interpreter, as users do: for tests of the start itself, and of what a process takes."""
    url: str = ""
    process: subprocess.Popen[str] | Forked | None = None

    @property
    def data_dir(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """All that its processes have said on stderr."""
        path = self.folder / "stderr.log"
        return path.read_text() if path.exists() else ""

    def start(self) -> "Server":
        """Start it and wait for the ready line."""
        arguments = ["serve", "--port", "0", "--data-dir", str(self.data_dir), "--model", self.model, *self.arguments]
        variables = {**environment(self.folder), **self.variables}
        with (self.folder / "stderr.log").open("a") as log:
            if POSSIBLE and self.program == PROGRAM and not self.whole:
                self.process = Forked(arguments, stderr=log.fileno(), env=variables, cwd=self.folder)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, *self.program, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=variables,
                    cwd=self.folder,
                )
        line = self._first_line(START_S)
        assert line.startswith(READY), f"instead of the ready line came {line!r}; the log:\n{self.log[-4000:]}"
        self.url = line.removeprefix(READY).strip()
        if "--mcp-config" in self.arguments:
            self._wait_for_tools()
        return self

    def _wait_for_tools(self) -> None:
        """Until the servers behind it have started or failed: on a busy machine it is ready before they are."""
        deadline = time.monotonic() + START_S
        with self.client() as client:
            while time.monotonic() < deadline:
                listed = client.get("/v1/mcp/servers")
                if not listed.is_success or all(each["status"] != "starting" for each in listed.json()["data"]):
                    break
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_S)
        self._forget()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end after a signal; its exit code."""
        assert self.process is not None
        code = self.process.wait(STOP_S)
        self._forget()
        return code

    def close(self) -> None:
        """End it, however it stands."""
        if self.process is not None:
            self.kill()

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client of it."""
        return httpx.Client(base_url=self.url, timeout=HANGS_S, **options)

    def _forget(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def _first_line(self, seconds: float) -> str:
        """Its first line on stdout; what there is of it when the time is over or the process ends."""
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(self.process.stdout.fileno(), 4096)
                if not piece:
                    break
                line += piece
        return line.decode()
