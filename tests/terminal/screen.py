"""A real terminal for tests: a program on a pty, and the screen that a person would see of it."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pexpect
import pyte

from tests.e2e.forked import program
from tests.e2e.server import environment
from tests.patience import HANGS_S

ROWS, COLUMNS = 60, 110
WAIT_S = HANGS_S
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


class _Screen(pyte.HistoryScreen):
    """Answers what programs ask of terminals, such as where the cursor is."""

    def __init__(self, child: "pexpect.spawn[str]") -> None:
        super().__init__(COLUMNS, ROWS, history=1000)
        self._child = child

    def write_process_input(self, data: str) -> None:
        self._child.send(data)


class Terminal:
    """`tenuto ARGUMENTS` in a terminal. Every wait is for something on the screen, and bounded."""

    def __init__(self, home: Path, *arguments: str) -> None:
        variables: Any = {**environment(home), "TERM": "xterm-256color"}
        command, *given = program(*arguments)
        self._child = pexpect.spawn(
            command,
            given,
            env=variables,
            cwd=str(home),
            dimensions=(ROWS, COLUMNS),
            timeout=WAIT_S,
            encoding="utf-8",
        )
        self._child.delaybeforesend = None
        self._screen = _Screen(self._child)
        self._stream = pyte.Stream(self._screen)

    @property
    def text(self) -> str:
        """What the screen shows now, and what has scrolled off its top."""
        gone = ["".join(line[column].data for column in range(COLUMNS)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *self._screen.display])

    def until(self, wanted: str, times: int = 1) -> str:
        """Wait until the screen shows a text, so many times; all that it shows then."""
        deadline = time.monotonic() + WAIT_S
        while self.text.count(wanted) < times:
            assert self._read(deadline), f"{wanted!r} never came; the screen:\n{self.text.rstrip()}"
        return self.text

    def keys(self, text: str) -> None:
        """Type, without Enter."""
        self._child.send(text)

    def line(self, text: str) -> None:
        """Type a line and Enter."""
        self._child.send(text + ENTER)

    def exit_code(self) -> int:
        """Wait for the program's end."""
        deadline = time.monotonic() + WAIT_S
        while self._read(deadline):
            pass
        self._child.close()
        code: int | None = self._child.exitstatus
        assert code is not None, f"it was ended by signal {self._child.signalstatus}; the screen:\n{self.text}"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.close(force=True)

    def _read(self, deadline: float) -> bool:
        """Take what has come; false where the program has ended or the time is over."""
        try:
            data = self._child.read_nonblocking(65536, timeout=max(0.0, deadline - time.monotonic()))
        except (pexpect.EOF, pexpect.TIMEOUT):
            return False
        self._stream.feed(data)
        return True
