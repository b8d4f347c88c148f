"""The frames of a response's stream: its events, numbered as they are made. Bytes out, no I/O."""

from typing import Any

from tenuto.runtime.dialects.openai.responses.events import KeepAlive, StreamEvent
from tenuto.runtime.http.sse import frame, json_line, one_line


class Events:
    """Where a response tells what happens. This one is for a response that is sent whole: nothing is told."""

    def tell(self, kind: type[StreamEvent], name: str, **fields: Any) -> None:
        """Tell an event."""

    def tell_piece(self, head: bytes, text: str, tail: bytes = b"") -> None:
        """Tell an event that comes by the token: `head` is what `piece_head` made."""

    def take(self) -> bytes:
        """The frames of what has been told since the last time."""
        return b""


class StreamEvents(Events):
    """The events of one stream: every number is given once, in the order in which they are sent.

    A stream that goes on where another was broken off has seen the events up to number `after`.
    """

    def __init__(self, after: int | None = None) -> None:
        self._next = 0
        self._first = 0 if after is None else after + 1
        self._frames: list[bytes] = []

    def tell(self, kind: type[StreamEvent], name: str, **fields: Any) -> None:
        """Tell an event."""
        if self._next >= self._first:
            event = kind(type=name, sequence_number=self._next, **fields)
            self._frames.append(frame(one_line(event.encode()), event=name))
        self._next += 1

    def tell_piece(self, head: bytes, text: str, tail: bytes = b"") -> None:
        """Tell an event that comes by the token."""
        if self._next >= self._first:
            self._frames.append(b'%s%d,"delta":%s%s}\n\n' % (head, self._next, json_line(text), tail))
        self._next += 1

    def take(self) -> bytes:
        """The frames of what has been told since the last time."""
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def keep_alive(self) -> bytes:
        """A frame that says nothing but that more will come.

        It takes no number, so that the events have the same in every reading: its own is that of the event before it,
        after which its client may go on.
        """
        event = KeepAlive(type="keepalive", sequence_number=max(self._next, self._first) - 1)
        return frame(event.encode(), event="keepalive")


def piece_head(event: str, item_id: str, index: int, *, has_parts: bool = True) -> bytes:
    """What is the same in all pieces of one text, up to the event's number."""
    part = b',"content_index":0' if has_parts else b""
    name = event.encode()
    return b'event: %s\ndata: {"type":"%s","item_id":"%s","output_index":%d%s,"sequence_number":' % (
        name,
        name,
        item_id.encode(),
        index,
        part,
    )
