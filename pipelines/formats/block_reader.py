"""Reads one block of calls while it streams: its calls one after the other, each by its body's reader."""

import re

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.streams import LONGEST_HEAD, held_back
from tenuto.pipelines.turns import CallBroken, TurnEvent

_NAME = re.compile(r"[\w.-]+")
_CUT = "the turn ended inside of the call"
_ANOTHER = "another call began inside of it"
_NO_CALL = "no call follows what opens one"


class Glue:
    """The texts of a block as they come in the stream, without the white space at their ends."""

    def __init__(self, block: Block, alphabet: Alphabet) -> None:
        opener = block.start if block.bracketed else block.opener
        texts = (block.start, opener, block.call_open, block.call_close, block.closer)
        self.start, self.opener, self.call_open, self.call_close, self.closer = (
            alphabet.stream(text).strip() for text in texts
        )
        self._behind, self._others = alphabet.stream(block.behind), frozenset(block.others)
        self.signs = alphabet.signs.intersection("".join(map(alphabet.stream, block.texts)))

    def opens(self, following: str) -> bool | None:
        """Whether the opener opens a call where this follows it; None where it cannot be told yet."""
        if not self._behind:
            return True
        found = _NAME.match(following[:LONGEST_HEAD])
        if found is None:
            return False if following else None
        rest = following[found.end() :]
        if rest.startswith(self._behind):
            return found[0] not in self._others
        return None if len(following) < LONGEST_HEAD and self._behind.startswith(rest) else False


class BlockReader:
    """One block, from right after what opens it, to `rest`: the text that follows it. One turn, one thread."""

    def __init__(self, block: Block, glue: Glue, alphabet: Alphabet, first: int, schemas: Schemas) -> None:
        self.rest: str | None = None
        self.started = 0
        """How many calls were told to have begun."""
        self._block, self._glue, self._alphabet, self._schemas = block, glue, alphabet, schemas
        self._first = first
        self._unread = ""
        self._opened = glue.opener
        self._listed = block.bracketed
        self._call: CallReader | None = None
        self._read_any = False
        self._foreign = alphabet.signs - glue.signs
        # A sign cannot be an argument's text: these end a call wherever they come.
        self._ends = frozenset(text for text in (glue.opener, glue.call_open, glue.closer) if text in alphabet.signs)
        if not block.opener and not block.listed:
            self._open_call()

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        self._unread += text if self._foreign.isdisjoint(text) else "".join(c for c in text if c not in self._foreign)
        events: list[TurnEvent] = []
        while self.rest is None and self._unread:
            step = self._between() if self._call is None else self._inside(self._call)
            if step is None:
                break
            events += step
        return events

    def finish(self, *, ended: bool) -> list[TurnEvent]:
        """The turn is over; `ended`: by the model itself. A call that is whole counts, be it closed or not."""
        if self._call is None:
            return [] if self._read_any else [CallBroken(self._alphabet.shown(self._opened + self._unread), _NO_CALL)]
        events = self._call.push(self._take(len(self._unread)))
        if ended and self._call.is_whole():
            return events + self._leave_call(self._call.close(), self._glue.call_close)
        return events + self._leave_call([self._call.broken(_CUT)], "")

    def _between(self) -> list[TurnEvent] | None:
        """Between two calls; None where more text has to come."""
        glue, block = self._glue, self._block
        self._unread = self._unread.lstrip()
        expected = [(text, then) for text, then in (
            (glue.closer, self._end),
            (glue.call_open, self._open_call),
            ("]" if self._listed else "", self._end_list),
            ("," if self._listed and self._read_any else "", self._nothing),
            ("[" if block.listed and not self._listed and not self._read_any else "", self._begin_list),
        ) if text]  # fmt: skip
        for text, then in expected:
            if self._unread.startswith(text):
                self._take(len(text))
                then()
                return []
        if not self._unread or any(text.startswith(self._unread) for text, _ in expected):
            return None
        if not block.gathers or (not glue.closer and self._read_any and not self._listed):
            self._end()
        else:
            self._open_call(with_opener=False)
        return []

    def _inside(self, call: CallReader) -> list[TurnEvent] | None:
        """Inside of a call; None where more text has to come."""
        end = len(self._unread)
        if not self._ends.isdisjoint(self._unread):
            end = next(place for place, each in enumerate(self._unread) if each in self._ends)
        close = self._glue.call_close
        if not close:
            return self._self_ending(call, end)
        at = self._unread.find(close, 0, end)
        if at >= 0:
            events = call.push(self._take(at))
            if call.in_string and close not in self._alphabet.signs:
                return events + call.push(self._take(1))  # it stands in an argument
            self._take(len(close))
            return events + self._leave_call(call.close(), close)
        if end < len(self._unread):
            return call.push(self._take(end)) + self._interrupt(call)
        taken = len(self._unread) - held_back(self._unread, close)
        return call.push(self._take(taken)) if taken else None

    def _self_ending(self, call: CallReader, end: int) -> list[TurnEvent] | None:
        text = self._take(end)
        events = call.push(text) if text else []
        if call.rest is not None:
            self._unread = call.rest + self._unread
            return events + self._leave_call(call.close(), "")
        return events + self._interrupt(call) if self._unread else events

    def _interrupt(self, call: CallReader) -> list[TurnEvent]:
        """A marker that is a token has come inside of a call: whatever is whole counts."""
        if self._unread[0] == self._glue.closer and call.is_whole():
            return self._leave_call(call.close(), "")
        events = self._leave_call([call.broken(_ANOTHER)], "")
        if self.rest is not None:
            self._unread, self.rest = self.rest, None
        if self._unread[0] == self._glue.opener != self._glue.closer:
            self._take(1)
            self._listed = False
        return events

    def _open_call(self, *, with_opener: bool = True) -> None:
        self._call = self._block.body.reader(self._alphabet, self._first + self.started, self._schemas)
        self._opened = self._glue.call_open if with_opener else ""

    def _leave_call(self, events: list[TurnEvent], closer: str) -> list[TurnEvent]:
        assert self._call is not None
        self.started += self._call.started
        self._call, self._read_any = None, True
        if not self._block.gathers:
            self._end()
        return [
            CallBroken(self._alphabet.shown(self._opened + event.text + closer), event.reason, event.index)
            if isinstance(event, CallBroken)
            else event
            for event in events
        ]

    def _begin_list(self) -> None:
        self._listed = True

    def _end_list(self) -> None:
        self._listed = False
        if not self._glue.closer:
            self._end()

    def _nothing(self) -> None:
        """A separator."""

    def _end(self) -> None:
        self.rest, self._unread = self._unread, ""

    def _take(self, length: int) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken
