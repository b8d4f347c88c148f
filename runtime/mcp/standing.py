"""The standing connections of the older protocol: whose each is, and which end for others. No transport."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenuto.sessions.shares import Shares

MOST = 1000
"""Clients that may be connected at a time; each holds a task and its buffers."""
IDLE_S = 1800.0
"""After so long without a request the SDK ends a connection."""
RETRY_S = 5.0
"""Where all connections are in use, one of them is likely to rest by then."""

OnEnd = Callable[[str, str], None]


class Standing:
    """Connections by id. Event-loop thread only. `clock` gives seconds since any time.

    `on_end` is called with the principal and the id of each that stands no more.
    """

    def __init__(self, clock: Callable[[], float], most: int = MOST, on_end: OnEnd = lambda *_: None) -> None:
        self._clock, self._on_end = clock, on_end
        self._requests: Counter[str] = Counter()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._shares: Shares[str] = Shares("the table of MCP connections", most, lambda id: not self._requests[id])
        self._owner: dict[str, str] = {}

    def expect_room(self, principal: str) -> None:
        """Raises Overloaded where a connection of this principal would make nobody's idle one end."""
        self.forget_ended()
        self._shares.expect_room(principal, self._clock(), RETRY_S)

    def begin(self, id: str, principal: str) -> list[tuple[str, str]]:
        """A connection stands; those that end for it, each with its principal."""
        gone = [(other, self._owner[other]) for other in self._shares.settle(id, principal)]
        for other, _ in gone:
            self.end(other)
        self._owner[id] = principal
        self._touch(id)
        return gone

    @contextmanager
    def in_use(self, id: str) -> Iterator[None]:
        """A request of this connection, which does not end while there is one."""
        self._requests[id] += 1
        self._touch(id)
        try:
            yield
        finally:
            self._requests[id] -= 1
            if not self._requests[id]:
                del self._requests[id]
            self._touch(id)

    def end(self, id: str) -> None:
        """A connection stands no more."""
        self._shares.remove(id)
        self._used.pop(id, None)
        if (owner := self._owner.pop(id, None)) is not None:
            self._on_end(owner, id)

    def forget_ended(self) -> None:
        """Those that the SDK has ended, because nobody has used them for so long."""
        since = self._clock() - IDLE_S
        ended = [id for id, used in self._used.items() if used <= since and not self._requests[id]]
        for id in ended:
            self.end(id)

    def is_of(self, id: str, principal: str) -> bool:
        """Whether a connection stands that is this principal's."""
        return self._owner.get(id) == principal

    def _touch(self, id: str) -> None:
        if id in self._shares:
            self._shares.touch(id)
            self._used[id] = self._clock()
            self._used.move_to_end(id)
