"""What a client of the older protocol missed while its stream was broken: events kept in memory, and told again.

Each connection has a store of its own, so that no client reads another's; a stream's events alone follow the one that
was seen last. The connections of a principal share one bound. An event that is not kept any more is not known: after it
nothing is told again.
"""

from collections import OrderedDict
from secrets import token_hex
from weakref import WeakSet

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

MOST_EVENTS = 1000
"""Of one connection."""
MOST_BYTES = 4 << 20
"""Of one connection, as JSON text."""
MOST_BYTES_OF_A_PRINCIPAL = 32 << 20
_ENVELOPE_BYTES = 200


class Share:
    """The stores of one principal's connections. Those that have ended leave it by themselves."""

    def __init__(self, most_bytes: int = MOST_BYTES_OF_A_PRINCIPAL) -> None:
        self._most = most_bytes
        self._stores: WeakSet[Missed] = WeakSet()

    @property
    def nbytes(self) -> int:
        """What they keep together."""
        return sum(store.nbytes for store in self._stores)

    def join(self, store: "Missed") -> None:
        """A connection stands."""
        self._stores.add(store)

    def make_room(self) -> None:
        """Keep no more than may be: who has most gives way."""
        while self.nbytes > self._most:
            max(self._stores, key=lambda store: store.nbytes).drop_oldest()


class Missed(EventStore):
    """The events of one connection. Event-loop thread only."""

    def __init__(self, share: Share, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._share, self._most_events, self._most_bytes = share, most_events, most_bytes
        self._name = token_hex(8)
        self._events: OrderedDict[EventId, tuple[StreamId, JSONRPCMessage | None, int]] = OrderedDict()
        self._number = 0
        self.nbytes = 0
        share.join(self)

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event; None begins a stream. The oldest ones make room for it."""
        self._number += 1
        id = f"{self._name}-{self._number}"
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        nbytes = _ENVELOPE_BYTES + len(text)
        self._events[id] = (stream_id, message, nbytes)
        self.nbytes += nbytes
        while len(self._events) > self._most_events or self.nbytes > self._most_bytes:
            self.drop_oldest()
        self._share.make_room()
        return id

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Tell what came after an event on its stream; the stream, unless its answer is told or the event not known."""
        if last_event_id not in self._events:
            return None
        stream = self._events[last_event_id][0]
        seen = is_over = False
        for id, (of, message, _) in list(self._events.items()):
            if seen and of == stream and message is not None:
                await send_callback(EventMessage(message, id))
                is_over = isinstance(message, JSONRPCResponse | JSONRPCError)
            seen = seen or id == last_event_id
        return None if is_over else stream

    def drop_oldest(self) -> None:
        """Keep one event less."""
        _, (_, _, nbytes) = self._events.popitem(last=False)
        self.nbytes -= nbytes
