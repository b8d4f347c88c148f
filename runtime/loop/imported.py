"""Ledgers that came with an imported session: believed as far as each token is what its item says. Pure.

The model would read what a ledger holds, and people see the items; so nothing may stand in the one that is not in the
other. Each ledger is rendered once and read once, so the cost is linear.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import assert_never

from tenuto.errors import TemplateFailed
from tenuto.pipelines.base import Codec
from tenuto.pipelines.stand_in import stand_in
from tenuto.pipelines.turns import (
    CallArguments,
    CallBroken,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    TextDelta,
    TurnParser,
)
from tenuto.runtime.loop.ledgers import fingerprint, made_by
from tenuto.sessions.items import AssistantItem, Item, NoteItem, SystemItem, ToolSpec, UserItem
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.session import Session

Span = Sequence[int]

_ASKED = (UserItem("x"),)


@dataclass(frozen=True, slots=True)
class DroppedLedger:
    """A ledger that was not taken over, or only for the first `kept_items`, and why."""

    fingerprint: str
    reason: str
    kept_items: int = 0


def drop_unbelieved(session: Session, codecs: Iterable[Codec]) -> list[DroppedLedger]:
    """Take from a new session the ledgers that cannot be believed. Any thread; the session is nobody else's yet.

    What is dropped is rendered from the items when it is needed, so only the very tokens that the model had sampled are
    lost. A ledger of a model that is not served cannot be checked, now or later: by then nobody knows that it was not
    ours.
    """
    known = list(codecs)
    dropped = []
    for name in list(session.ledgers):
        ledger = session.ledgers[name]
        doubt = _doubt(session, ledger, known)
        if doubt is None:
            continue
        ledger.cut(doubt.kept_items)
        if not doubt.kept_items:
            del session.ledgers[name]
        dropped.append(doubt)
    return dropped


def _doubt(session: Session, ledger: Ledger, codecs: Sequence[Codec]) -> DroppedLedger | None:
    """Why a ledger is not believed, and up to where it is; None where all of it is."""
    name = ledger.fingerprint
    codec = next((each for each in codecs if made_by(each, name)), None)
    if codec is None:
        return DroppedLedger(name, "no served model has this tokeniser and template")
    offered = (session.server_tools or (), ())
    tools = next((each for each in offered if fingerprint(codec, each) == name), None)
    if tools is None:
        return DroppedLedger(name, "it was made with tools that the document does not have")
    if ledger.tokens and not max(ledger.tokens) < codec.info.vocabulary:
        return DroppedLedger(name, "it has tokens outside the vocabulary")
    items = session.items[: ledger.items]
    try:
        said = _Turns(codec, tools, items, ledger).said()
        rendered = codec.suffix((), items, tools, ended=False, said=said)
    except TemplateFailed as error:
        return DroppedLedger(name, f"the model's chat template refuses its items: {error}")
    for place, span in enumerate(rendered.items):
        if list(span) != ledger.span(place):
            return DroppedLedger(name, f"the tokens of item {place} do not match the item", place)
    return None


@dataclass(slots=True)
class _Turns:
    """The assistant's turns of a ledger."""

    codec: Codec
    tools: Sequence[ToolSpec]
    items: Sequence[Item]
    ledger: Ledger
    _openings: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict)
    _shapes: dict[tuple[bool, bool, int], list[int]] = field(default_factory=dict)

    def said(self) -> dict[int, Span]:
        """The turns whose tokens, after what opens them, read as their items; by their places."""
        found: dict[int, Span] = {}
        systems = sum(1 for _ in takewhile(lambda item: isinstance(item, SystemItem), self.items))
        asked = request = 0  # the last request, and that before the model spoke last
        for place, item in enumerate(self.items):
            if isinstance(item, AssistantItem) and place:
                since = max(request, systems)
                past = [*self.items[:systems], *self.items[since:place]]
                if self._says(place, item, stand_in(past)):
                    found[place] = self.ledger.span(place)
                request = asked
            elif isinstance(item, UserItem | NoteItem):
                asked = place
        return found

    def _says(self, place: int, item: AssistantItem, past: Sequence[Item]) -> bool:
        stops = self.codec.info.stop_tokens
        span = self.ledger.span(place)
        opening = self._opening(place, past)
        if tuple(span[: len(opening)]) != opening:
            return False
        sampled = span[len(opening) :]
        ended = bool(sampled) and sampled[-1] in stops
        body = sampled[:-1] if ended else sampled
        marks = self._reserved(body)
        if stops.intersection(marks) or (marks and marks != self._marks(item)):
            return False
        wanted = _Said(item.text, item.reasoning, tuple((call.name, call.arguments) for call in item.calls))
        # Without calls the model may have seen no tools, and then what looks like a call is text.
        ways = (True,) if item.calls else (True, False)
        return any(
            _read(self.codec.parser(calls=calls, tools=self.tools), sampled, ended=ended) == wanted for calls in ways
        )

    def _opening(self, place: int, past: Sequence[Item]) -> tuple[int, ...]:
        """What the template writes after the past to let the model speak: much the same after the same kinds of items.

        Where it is not, the turn is not read, which costs a ledger and is never wrong.
        """
        before = self.ledger.span(place - 1)
        ended = bool(before) and before[-1] in self.codec.info.stop_tokens
        key = (*map(type, past[-2:]), ended)
        if key not in self._openings:
            self._openings[key] = self.codec.suffix(past, (), self.tools, ended=ended).opening
        return self._openings[key]

    def _marks(self, item: AssistantItem) -> list[int]:
        """The control and marker tokens that the template itself writes for such a turn, after what opens it.

        None of them comes of what is said, so turns of one shape have the same.
        """
        shape = (bool(item.text), bool(item.reasoning), len(item.calls))
        if shape not in self._shapes:
            opening = self._reserved(self.codec.suffix(_ASKED, (), (), ended=False).opening)
            marks = self._reserved(self.codec.suffix(_ASKED, (item,), (), ended=False).items[0])
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(opening, marks, strict=False)))
            self._shapes[shape] = marks[same:]
        return self._shapes[shape]

    def _reserved(self, tokens: Span) -> list[int]:
        return [token for token in tokens if token in self.codec.info.control_tokens]


@dataclass(frozen=True, slots=True)
class _Said:
    """What a turn says."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]


def _read(parser: TurnParser, sampled: Span, *, ended: bool) -> _Said | None:
    """A turn as the loop would have read it; None where tokens of it would have come into no item."""
    text, reasoning, calls = "", "", []
    for event in [*(event for token in sampled for event in parser.push(token)), *parser.finish()]:
        match event:
            case TextDelta():
                text += event.text
            case ReasoningDelta():
                reasoning += event.text
            case CallBroken():
                if event.index is not None or not ended:
                    return None
                text += event.text
            case CallFinished():
                calls.append((event.name, event.arguments))
            case CallStarted() | CallArguments():
                pass
            case _:
                assert_never(event)
    return None if calls and not ended else _Said(text, reasoning, tuple(calls))
