"""The format of gpt-oss: messages in channels. Analysis is reasoning, calls are messages to functions, the rest
is text.

Written down at https://cookbook.openai.com/articles/openai-harmony.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import Awaited, Reasoning, Surroundings, TextOpeners
from tenuto.pipelines.formats.json_call import read_arguments
from tenuto.pipelines.formats.lark import ANY_TEXT, Rules, in_order, one_of
from tenuto.pipelines.formats.streams import TrimmedText
from tenuto.pipelines.turns import (
    CallArguments,
    CallBroken,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnEvent,
    TurnParser,
)
from tenuto.pipelines.vocabulary import Vocabulary
from tenuto.sessions.items import JsonObject, ToolSpec

_CHANNEL, _MESSAGE, _START, _CONSTRAIN = "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_MARKERS = (_CHANNEL, _MESSAGE, _START, _CONSTRAIN, _END, _CALL, _RETURN)
_ANALYSIS = b"analysis"
_NEXT = f"{_START}assistant{_CHANNEL}"
_REASONING = Reasoning(f"{_CHANNEL}analysis{_MESSAGE}", _END, to_text=f"{_NEXT}final{_MESSAGE}", to_any=_NEXT)
_TO = f"{_CHANNEL}commentary to=functions."
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_BEFORE_CALLS = (_TO, f"{_CHANNEL}analysis to=functions.", f"{_START}assistant to=functions.")


def detect(surroundings: Surroundings) -> "Harmony | None":
    """The format, if this model's template speaks it."""
    call = surroundings.call
    return of(surroundings) if _CHANNEL in call and "to=functions.f" in call else None


def of(surroundings: Surroundings) -> "Harmony":
    """The format as this model has it."""
    vocabulary = surroundings.vocabulary
    pieces = enumerate(vocabulary.pieces)
    back = frozenset(one for one, piece in pieces if piece and piece.startswith((_ANALYSIS, _ANALYSIS[: len(piece)])))
    return Harmony(vocabulary, replace(_REASONING, back=back))


@dataclass(frozen=True)
class Harmony:
    """Implements Format. A turn has one call: it ends with it."""

    vocabulary: Vocabulary
    reasoning: Reasoning
    name: str = "gpt-oss"
    calls: bool = True
    reasons: bool = True
    openers: frozenset[int] = frozenset()
    strangers: frozenset[int] = frozenset()

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        return _MARKERS

    @cached_property
    def _alphabet(self) -> Alphabet:
        return Alphabet(self.vocabulary, _MARKERS)

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text like any other."""
        del tools
        return _Reader(self._alphabet, calls=calls)

    def rules(self) -> Rules:
        """An empty grammar in this vocabulary."""
        return Rules(self._alphabet)

    def awaited(self, names: Sequence[str]) -> Awaited:
        """What shows that calls of these tools begin."""
        del names
        return Awaited(texts=TextOpeners(_BEFORE_CALLS, heads=("to=functions.",)))

    def calls_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for a call, from the opener on."""
        del parallel
        arguments = [rules.json(f"arguments_{index}", schema) for index, schema in enumerate(tools.values())]
        named = list(zip(tools, arguments, strict=True))
        after, before = f" {_CONSTRAIN}json{_MESSAGE}", f"{_CHANNEL}commentary json{_MESSAGE}"
        ways = [
            in_order(rules.text(_TO), one_of([in_order(rules.text(name + after), each) for name, each in named])),
            in_order(
                '/ ?/ "to=functions."', one_of([in_order(rules.text(name + before), each) for name, each in named])
            ),
        ]  # as models write it, and as the template does
        return one_of(ways)

    def awaited_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """The same: it begins with the text that is awaited."""
        return self.calls_rule(rules, tools, parallel=parallel)

    def turn_rule(self, rules: Rules, body: str) -> str:
        """Lark for a turn from its first token: the analysis, and then `body`."""
        answer = rules.text(f"{_CHANNEL}final{_MESSAGE}")
        body = re.sub(r"^answer\b", f"{answer} answer", body)
        analysis = in_order(
            rules.text(f"{_CHANNEL}analysis{_MESSAGE}"), ANY_TEXT, rules.text(f"{_END}{_START}assistant")
        )
        return f"( {analysis} )? ( {body} )"


class _State(Enum):
    HEADER = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()


class _Reader:
    def __init__(self, alphabet: Alphabet, *, calls: bool) -> None:
        self._alphabet, self._calls = alphabet, calls
        self._decoder = alphabet.decoder()
        self._stops = alphabet.vocabulary.stops
        write = alphabet.stream
        self._ends = {write(text) for text in (_END, _CALL, _RETURN, _START)}
        self._message = write(_MESSAGE)
        self._in_header = {write(_CHANNEL), write(_CONSTRAIN)}
        self._markers = (*self._ends, self._message, *self._in_header)
        self._pattern = re.compile("|".join(map(re.escape, self._markers)))
        self._longest = max(map(len, self._markers))
        self._state = _State.HEADER
        self._header = ""
        self._plain = True
        """Nothing but text so far: a model without channels."""
        self._unread = ""
        self._text, self._reasoning = TrimmedText(keep_start=True), TrimmedText(keep_start=False)
        self._name, self._arguments, self._index = "", "", 0
        self._ended = False

    def push(self, token: int) -> list[TurnEvent]:
        self._ended = self._ended or token in self._stops
        self._unread += self._decoder.push(token)
        return self._read(last=False)

    def finish(self) -> list[TurnEvent]:
        self._unread += self._decoder.flush()
        events = self._read(last=True)
        if self._state is _State.CALL:
            return events + self._close(whole=self._ended)
        if self._state is _State.HEADER and self._header.strip():
            header = self._alphabet.shown(self._header)
            if self._plain:
                return events + self._say(header)
            if _RECIPIENT.search(header) and self._calls:
                return [*events, CallBroken(header, "the turn ended before the call's arguments")]
        return events

    def _read(self, *, last: bool) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        while self._unread:
            found = self._pattern.search(self._unread)
            if found is not None:
                events += self._consume(self._take(found.start()))
                self._take(len(found[0]))
                events += self._on_marker(found[0])
                continue
            held = 0 if last else self._held()
            if len(self._unread) > held:
                events += self._consume(self._take(len(self._unread) - held))
            break
        return events

    def _held(self) -> int:
        for size in range(min(self._longest - 1, len(self._unread)), 0, -1):
            if any(marker.startswith(self._unread[-size:]) for marker in self._markers if len(marker) > size):
                return size
        return 0

    def _take(self, length: int) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _on_marker(self, marker: str) -> list[TurnEvent]:
        if marker == self._message and self._state is _State.HEADER:
            return self._begin()
        if self._state is _State.HEADER:
            said = self._header if self._plain and not _RECIPIENT.search(self._header) else ""
            self._plain = False
            self._header = "" if marker in self._ends else self._header[len(said) :] + marker
            return self._say(said) if said.strip() else []
        events = self._close(whole=marker in self._ends) if self._state is _State.CALL else []
        self._state, self._header, self._plain = _State.HEADER, "", False
        self._header = marker if marker in self._in_header else ""
        return events

    def _begin(self) -> list[TurnEvent]:
        """A message begins: its header is whole."""
        header, self._plain = self._alphabet.shown(self._header), False
        to = _RECIPIENT.search(header)
        if to is not None and self._calls:
            self._state, self._name, self._arguments = _State.CALL, to[1], ""
            self._text.drop()
            return [CallStarted(self._index, self._name)]
        if to is None and "analysis" in header:
            self._state = _State.REASONING
            return []
        self._state = _State.TEXT
        return self._say(f"{header}{_MESSAGE}") if to is not None else []

    def _consume(self, text: str) -> list[TurnEvent]:
        if not text:
            return []
        match self._state:
            case _State.HEADER:
                self._header += text
                return []
            case _State.REASONING:
                thought = self._reasoning.push(text)
                return [ReasoningDelta(thought)] if thought else []
            case _State.TEXT:
                return self._say(text)
            case _State.CALL:
                self._arguments += text
                return [CallArguments(self._index, text)]

    def _say(self, text: str) -> list[TurnEvent]:
        said = self._text.push(text)
        return [TextDelta(said)] if said else []

    def _close(self, *, whole: bool) -> list[TurnEvent]:
        """The message to a function is over."""
        try:
            if not whole:
                raise ValueError("the turn ended inside of the call")
            read_arguments(self._arguments)
        except (ValueError, RecursionError) as error:
            broken = CallBroken(f"{_TO}{self._name}{_MESSAGE}{self._arguments}", str(error), self._index)
            self._index += 1
            return [broken]
        finished = CallFinished(self._index, self._name, self._arguments)
        self._index += 1
        return [finished]
