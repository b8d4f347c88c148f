"""One turn's tokens to events: text, reasoning and the blocks of calls, for every format. Never raises."""

from collections.abc import Sequence
from enum import Enum, auto

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import Reasoning, Schemas
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.block_reader import BlockReader, Glue
from tenuto.pipelines.formats.streams import TrimmedText, held_back
from tenuto.pipelines.turns import ReasoningDelta, TextDelta, TurnEvent


class _State(Enum):
    START = auto()  # nothing but white space so far
    TEXT = auto()
    REASONING = auto()
    CALLS = auto()


class Reading:
    """What a reader looks for, worked out once for each format. Immutable."""

    def __init__(
        self, alphabet: Alphabet, blocks: Sequence[Block], thoughts: Reasoning, unsaid: Sequence[str], spoken: str
    ) -> None:
        self.alphabet = alphabet
        self.think, self.thought = (alphabet.stream(text).strip() for text in (thoughts.opener, thoughts.closer))
        self.begun = thoughts.begun
        """Whether the template begins every turn inside of the reasoning."""
        self.blocks = [(block, Glue(block, alphabet)) for block in blocks]
        self.opening = {glue.start: (block, glue) for block, glue in reversed(self.blocks) if glue.start}
        self.unsaid = frozenset(map(alphabet.stream, unsaid))
        """Texts that are no part of what is said. One of several tokens shows, as calls do, that no thought goes on."""
        self.spoken = alphabet.stream(spoken).lstrip()
        telling = (*self.opening, *self.unsaid, self.think)
        self.certain = [text for text in telling if len(text) > 1 and not alphabet.signs.isdisjoint(text)]
        self.leading = [(block, glue) for block, glue in self.blocks if not glue.start]
        self.of_calls = frozenset().union(*(glue.signs for _, glue in self.blocks))
        """Signs of calls, which are text where there are none."""
        both = (False, True)
        self.wanted = {(thinks, calls): self._wanted(thinks=thinks, calls=calls) for thinks in both for calls in both}
        """The markers that may come next and that only the text can show, by whether the turn reasons and may call."""

    def _wanted(self, *, thinks: bool, calls: bool) -> list[str]:
        texts = (self.thought, *self.certain) if thinks else (*self.opening, *self.unsaid, *self.certain)
        left_out = () if calls else self.opening
        return [text for text in texts if text not in self.alphabet.signs and text not in left_out]


class TurnReader:
    """Implements TurnParser.

    A marker that is a token of the vocabulary is seen as that token alone; one that is not is looked for in the text.
    """

    def __init__(self, reading: Reading, *, calls: bool, schemas: Schemas) -> None:
        self._reading, self._calls, self._schemas = reading, calls, schemas
        self._stops = reading.alphabet.vocabulary.stops
        self._decoder = reading.alphabet.decoder()
        self._state = _State.REASONING if reading.begun else _State.START
        self._thought_once = reading.begun
        self._text = TrimmedText(keep_start=True)
        self._reasoning = TrimmedText(keep_start=False)
        self._unread = ""
        self._block: BlockReader | None = None
        self._started = 0
        self._ended = False

    def push(self, token: int) -> list[TurnEvent]:
        """Read the next sampled token."""
        self._ended = self._ended or token in self._stops
        return self._read(self._decoder.push(token))

    def finish(self) -> list[TurnEvent]:
        """Give what was held back. A call without a closer counts if it is whole and the model ended its turn."""
        events = self._read(self._decoder.flush())
        if self._block is not None:
            events += self._block.finish(ended=self._ended)
            return events
        signs = self._reading.alphabet.signs
        rest = "".join(character for character in self._take(len(self._unread)) if character not in signs)
        return events + self._consume(rest)

    def _read(self, text: str) -> list[TurnEvent]:
        self._unread += text
        events: list[TurnEvent] = []
        while self._unread:
            step = self._in_calls(self._block) if self._block is not None else self._outside()
            if step is None:
                break
            events += step
        return events

    def _in_calls(self, block: BlockReader) -> list[TurnEvent] | None:
        events = block.push(self._take(len(self._unread)))
        if block.rest is None:
            return events
        self._unread, self._block = block.rest, None
        self._started += block.started
        self._state = _State.TEXT
        return events

    def _outside(self) -> list[TurnEvent] | None:
        """Read on as far as no marker may be about to begin; None where more text has to come."""
        if self._state is _State.START and not self._leave_start():
            return None
        if self._block is not None:
            return []
        wanted = self._reading.wanted[self._state is _State.REASONING, self._calls]
        places = [(text, *self._find(text)) for text in wanted]
        found = [(at + len(text), at, text) for text, at, is_sure in places if is_sure]
        signs = self._reading.alphabet.signs
        if not signs.isdisjoint(self._unread):
            at = next(place for place, each in enumerate(self._unread) if each in signs)
            if not any(_may_hold(text, self._unread, at) for text in wanted):
                found.append((at + 1, at, self._unread[at]))
        doubtful = min((at for _, at, is_sure in places if not is_sure), default=len(self._unread))
        if found and min(found)[1] <= doubtful:
            _, at, text = min(found)
            events = self._consume(self._take(at))
            self._take(len(text))
            return events + self._on_marker(text)
        held = max((held_back(self._unread, text) for text in wanted), default=0)
        taken = self._take(min(len(self._unread) - held, doubtful))
        return self._consume(taken) if taken else None

    def _find(self, text: str) -> tuple[int, bool]:
        """Where a marker stands, and whether that is sure; the end and False where it does not."""
        glue = self._reading.opening[text][1] if text in self._reading.opening else None
        at = self._unread.find(text)
        while at >= 0:
            opens = True if glue is None else glue.opens(self._unread[at + len(text) :])
            if opens is not False:
                return at, opens is True
            at = self._unread.find(text, at + 1)
        return len(self._unread), False

    def _leave_start(self) -> bool:
        """Whether it can be told yet if the turn begins with what only the text shows: reasoning, or a call."""
        begun, reading = self._unread.lstrip(), self._reading
        self._consume(self._take(len(self._unread) - len(begun)))  # white space, of which nothing is told yet
        if not begun:
            return False
        undecided = False
        if reading.think and not self._thought_once:
            if begun.startswith(reading.think):
                self._unread, self._state = begun[len(reading.think) :], _State.REASONING
                self._thought_once = True
                return True
            undecided = reading.think.startswith(begun)
        if reading.spoken:
            if begun.startswith(reading.spoken):
                self._unread, self._state = begun[len(reading.spoken) :], _State.TEXT
                return True
            undecided = undecided or reading.spoken.startswith(begun)
        for block, glue in reading.leading if self._calls else ():
            begins = block.begins(begun, self._schemas)
            if begins:
                self._unread = begun
                self._open(block, glue)
                return True
            undecided = undecided or begins is None
        if not undecided:
            self._state = _State.TEXT
        return not undecided

    def _on_marker(self, marker: str) -> list[TurnEvent]:
        reading = self._reading
        if marker in reading.unsaid:
            if self._state is _State.REASONING and marker in (reading.thought, *reading.certain):
                self._leave_reasoning()
            return []
        if not self._calls and marker in reading.of_calls:
            return self._consume(reading.alphabet.shown(marker))
        if marker in reading.opening:
            self._open(*reading.opening[marker])
        elif marker == reading.think:
            self._state = _State.REASONING
        elif marker == reading.thought and self._state is _State.REASONING:
            self._leave_reasoning()
        return []

    def _leave_reasoning(self) -> None:
        self._reasoning.drop()
        self._text.skip_start()
        self._thought_once = True
        self._state = _State.START if self._reading.leading else _State.TEXT

    def _open(self, block: Block, glue: Glue) -> None:
        self._text.drop()
        self._state = _State.CALLS
        self._block = BlockReader(block, glue, self._reading.alphabet, self._started, self._schemas)

    def _take(self, length: int) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _consume(self, text: str) -> list[TurnEvent]:
        if not text:
            return []
        if self._state is _State.REASONING:
            thought = self._reasoning.push(text)
            return [ReasoningDelta(thought)] if thought else []
        said = self._text.push(text)
        if said:
            self._state = _State.TEXT
        return [TextDelta(said)] if said else []


def _may_hold(text: str, stream: str, at: int) -> bool:
    """Whether the character at a place of the stream may belong to a text there, of which more may have to come."""
    for offset, character in enumerate(text[: at + 1]):
        rest = stream[at - offset :]
        if character == stream[at] and (text.startswith(rest) or rest.startswith(text)):
            return True
    return False
