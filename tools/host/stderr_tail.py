"""The last lines that a server wrote where no message belongs: its stderr, and what on its stdout is no message."""

from collections import deque

import anyio
from anyio.abc import ByteReceiveStream

MAX_LINES = 200
MAX_LINE_BYTES = 2000

_PAUSE_S = 0.01
"""Taken after each full read, so that a server that floods is slowed down by its own full pipe."""
_FULL_READ = 32_768


class StderrTail:
    """Keeps a bounded tail over all restarts of one server. Event-loop thread only."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._open = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        unfinished = (_shown(self._open),) if self._open else ()
        return (*self._lines, *unfinished)[-MAX_LINES:]

    def add(self, data: bytes) -> None:
        """Take what was written, cut anywhere."""
        *whole, rest = (self._open + data).split(b"\n")
        self._lines.extend(_shown(line) for line in whole[-MAX_LINES:])
        self._open = rest[: MAX_LINE_BYTES + 1]

    async def follow(self, stream: ByteReceiveStream) -> None:
        """Read the stream until it ends."""
        try:
            while True:
                data = await stream.receive()
                self.add(data)
                if len(data) >= _FULL_READ:
                    await anyio.sleep(_PAUSE_S)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return


def _shown(line: bytes) -> str:
    cut = " ..." if len(line) > MAX_LINE_BYTES else ""
    return line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r") + cut
