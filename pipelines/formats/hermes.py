"""The Hermes format: calls as JSON objects between <tool_call> and </tool_call>, reasoning between <think> tags.

Used by Nous Hermes, Qwen 2.5 and 3, and the embedded model.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tenuto.pipelines.formats.base import Marker, Surroundings, lark_text
from tenuto.pipelines.formats.json_call import JsonCall
from tenuto.pipelines.formats.streams import MarkedTokens, TrimmedText, held_back
from tenuto.pipelines.turns import CallBroken, ReasoningDelta, TextDelta, TurnEvent, TurnParser
from tenuto.pipelines.vocabulary import Vocabulary

# Others share the opener and write something else after it, so the template's own call decides.
_CALL = re.compile(r'<tool_call>\s*\{\s*"name":\s*"f",\s*"arguments":\s*\{"a": "b"\}\s*\}\s*</tool_call>')


@dataclass(frozen=True, slots=True)
class Hermes:
    """The format as one vocabulary has it."""

    vocabulary: Vocabulary
    opener: Marker
    closer: Marker
    think: Marker
    thought: Marker
    reasons: bool
    """Whether the model may reason before it answers."""
    open_reasoning: bool
    """Whether the template begins every turn inside of the reasoning."""

    def parser(self, *, calls: bool) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text like any other."""
        return HermesParser(self, calls=calls)

    def call_rule(self, names: Sequence[str]) -> str:
        """Lark for one call after its opener, with the white space that the models were trained on."""
        bodies = (f"{lark_text(_call_head(name))} arguments_{index}" for index, name in enumerate(names))
        return f"{lark_text(_LINE)} ( {' | '.join(bodies)} ) {lark_text('}' + _LINE)} {self.closer.lark}"

    def calls_rule(self, *, parallel: bool) -> str:
        """Lark for one or more calls, each on a line of its own."""
        more = f" ( {lark_text(_LINE)} {self.opener.lark} call )*" if parallel else ""
        return f"{self.opener.lark} call{more}"

    def turn_rule(self, body: str) -> str:
        """Lark for a turn from its first token: the reasoning of a model that reasons, and then `body`."""
        if not self.reasons or self.think.id is None or self.thought.id is None:
            return body
        thoughts = f"/(.|\\n)*/ {self.thought.lark} /\\n{{0,2}}/"
        return f"{thoughts} ( {body} )" if self.open_reasoning else f"( {self.think.lark} {thoughts} )? ( {body} )"


def detect(surroundings: Surroundings) -> Hermes | None:
    """The format, if this model's template speaks it."""
    if not _CALL.search(surroundings.call):
        return None
    think = surroundings.marker("<think>")
    return Hermes(
        vocabulary=surroundings.vocabulary,
        opener=surroundings.marker("<tool_call>"),
        closer=surroundings.marker("</tool_call>"),
        think=think,
        thought=surroundings.marker("</think>"),
        reasons=think.id is not None or think.text in surroundings.template,
        open_reasoning=surroundings.opening.rstrip().endswith(think.text),
    )


_LINE = "\n"


def _call_head(name: str) -> str:
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


class _State(Enum):
    START = auto()  # nothing but white space so far
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class HermesParser:
    """One turn's tokens to events; implements TurnParser.

    A marker that is a token of the vocabulary is seen as that token alone; one that is not is looked for in the text.
    """

    def __init__(self, form: Hermes, *, calls: bool) -> None:
        self._form = form
        self._calls = calls
        markers = [form.opener, form.closer, form.think, form.thought]
        self._tokens = MarkedTokens(form.vocabulary, markers)
        self._state = _State.REASONING if form.open_reasoning else _State.START
        self._text = TrimmedText(keep_start=True)
        self._reasoning = TrimmedText(keep_start=False)
        self._unread = ""
        self._call = JsonCall(0)
        self._started = 0
        self._ended = False

    def push(self, token: int) -> list[TurnEvent]:
        """Read the next sampled token."""
        self._ended = self._ended or token in self._form.vocabulary.stops
        return self._read(self._tokens.push(token))

    def finish(self) -> list[TurnEvent]:
        """Give what was held back. A call without a closer counts if its JSON is whole and the model ended its turn."""
        events = self._read(self._tokens.flush())
        events += self._consume(self._take(len(self._unread)))
        if self._state is _State.CALL:
            if self._ended and self._call.is_whole():
                events += self._close_call()
            else:
                events += self._break_call("the turn ended inside of the call")
        return events

    def _read(self, parts: Sequence[str | Marker]) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for part in parts:
            if isinstance(part, str):
                self._unread += part
                events += self._scan()
            else:
                events += self._consume(self._take(len(self._unread)))
                events += self._on_marker(part)
        return events

    def _scan(self) -> list[TurnEvent]:
        """Read the text that is there, as far as no marker may be about to begin."""
        events: list[TurnEvent] = []
        while self._state is not _State.START or self._leave_start():
            wanted = self._wanted()
            if wanted is None or (at := self._unread.find(wanted.text)) < 0:
                held = 0 if wanted is None else held_back(self._unread, wanted.text)
                return events + self._consume(self._take(len(self._unread) - held))
            events += self._consume(self._take(at))
            events += self._on_text_marker(wanted)
        return events

    def _leave_start(self) -> bool:
        """Whether it can be told yet if the turn begins with reasoning that only the text shows."""
        begun, think = self._unread.lstrip(), self._form.think
        looked_for = self._form.reasons and think.id is None
        if looked_for and begun.startswith(think.text):
            self._unread = begun[len(think.text) :]
            self._state = _State.REASONING
        elif begun and not (looked_for and think.text.startswith(begun)):
            self._state = _State.TEXT
        return self._state is not _State.START

    def _wanted(self) -> Marker | None:
        """The marker that may come next and that only the text can show."""
        form = self._form
        match self._state:
            case _State.CALL:
                wanted = form.closer
            case _State.REASONING:
                wanted = form.thought
            case _:
                wanted = form.opener
                if not self._calls:
                    return None
        return wanted if wanted.id is None else None

    def _on_text_marker(self, marker: Marker) -> list[TurnEvent]:
        if marker == self._form.closer and self._call.in_string:
            return self._consume(self._take(1))  # it stands in a JSON string: text of an argument
        self._take(len(marker.text))
        return self._on_marker(marker)

    def _on_marker(self, marker: Marker) -> list[TurnEvent]:
        form = self._form
        if not self._calls and marker in (form.opener, form.closer):
            return self._consume(marker.text)
        if marker == form.opener:
            return self._open_call()
        if marker == form.closer and self._state is _State.CALL:
            return self._close_call()
        if marker == form.think and self._state is not _State.CALL:
            self._state = _State.REASONING
        elif marker == form.thought and self._state is _State.REASONING:
            self._reasoning.drop()
            self._text.skip_start()
            self._state = _State.TEXT
        return []

    def _take(self, length: int) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _consume(self, text: str) -> list[TurnEvent]:
        if not text:
            return []
        match self._state:
            case _State.START | _State.TEXT:
                said = self._text.push(text)
                if said:
                    self._state = _State.TEXT
                return [TextDelta(said)] if said else []
            case _State.REASONING:
                thought = self._reasoning.push(text)
                return [ReasoningDelta(thought)] if thought else []
            case _State.CALL:
                return self._call.push(text)

    def _open_call(self) -> list[TurnEvent]:
        events = self._break_call("another call began inside of it") if self._state is _State.CALL else []
        self._text.drop()
        self._call = JsonCall(self._started)
        self._state = _State.CALL
        return events

    def _close_call(self) -> list[TurnEvent]:
        events = self._call.close()
        return self._leave_call(events, self._form.closer.text)

    def _break_call(self, reason: str) -> list[TurnEvent]:
        return self._leave_call([self._call.broken(reason)], "")

    def _leave_call(self, events: list[TurnEvent], closer: str) -> list[TurnEvent]:
        self._started += self._call.started
        self._state = _State.TEXT
        opener = self._form.opener.text
        return [
            CallBroken(f"{opener}{event.text}{closer}", event.reason, event.index)
            if isinstance(event, CallBroken)
            else event
            for event in events
        ]
