"""A client that does not read: found by what is to be sent to it becoming no less."""

import time
from asyncio import WriteTransport


class Unread:
    """What waits in one connection's transport. Event-loop thread only."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._size = 0
        self._since = time.monotonic()

    def is_stuck(self, transport: WriteTransport, now: float) -> bool:
        """Whether it has not become less for longer than the client's patience allows. `now` is monotonic time."""
        size = transport.get_write_buffer_size()
        if size == 0 or size < self._size or not self._size:
            self._since = now
        self._size = size
        return size > 0 and now - self._since > self._patience_s
