"""One round: what the model samples becomes events while it streams, and an assistant item when it stops."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import TokenLogprob
from tenuto.pipelines.reasoning_watch import ReasoningWatch
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
from tenuto.runtime.engine.messages import Failed, RoundUsage, StopCause, Stopped, TokensSampled
from tenuto.runtime.loop.events import ClientCallArguments, ClientCallStarted, ReasoningAdded, RunEvent, TextAdded
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.prefill import Prefill
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.text import Shown, TextStream
from tenuto.runtime.loop.unfinished import OpenTokens, Said
from tenuto.sessions.ids import new_call_id
from tenuto.sessions.items import AssistantItem, ToolCall


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str = ""
    client_index: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round came to. `sampled` are all tokens of the round, in order."""

    item: AssistantItem
    sampled: tuple[int, ...]
    cause: StopCause
    usage: RoundUsage
    broken: str | None = None
    """What was wrong with what looked like a call, where the round has one that became text."""


@dataclass(slots=True)
class RoundReader:
    """Reads one round for a run: emits what clients see, gathers the item. Event-loop thread only."""

    run: Run
    round: int
    parser: TurnParser
    text: TextStream
    watch: ReasoningWatch | None = None
    """Counts the tokens of the reasoning, where the model marks it."""
    clients_so_far: int = 0
    sampled: OpenTokens = field(default_factory=OpenTokens)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _owed: str = ""
    """What of the client's own beginning the parser has not told yet."""
    _broken: str | None = None
    _is_own: bool = False
    """While that is read."""
    _replayed: Iterator[str] | None = None
    """While what was told already is read again: the ids of the calls in it."""

    def begin(self, prefill: Prefill, tokens: Iterable[int]) -> None:
        """Read the beginning of the turn, which the client has written: it is part of the item, and is not told."""
        self._reasoning.append(prefill.reasoning)
        self._owed, self._is_own = prefill.text, True
        for token in tokens:
            self._count(token)
            self._take(self.parser.push(token))
        self._is_own = False

    def replay(self, said: Said) -> None:
        """Read what the round had sampled in an earlier process, and told: nothing of it is told again."""
        self._replayed = iter(said.call_ids)
        self.push(said.tokens, said.logprobs)
        self._replayed = None
        self.sampled.kept = len(said.tokens)

    async def read(self, opened: OpenRound) -> Outcome:
        """Follow the round to its end.

        Raises:
            GenerationFailed: the engine failed this sequence.
        """
        async for event in opened:
            match event:
                case TokensSampled():
                    self.push(event.tokens, event.logprobs)
                case Stopped():
                    item, sampled = self.finish(event.cause), tuple(self.sampled.tokens)
                    usage = replace(event.usage, reasoning=0 if self.watch is None else self.watch.tokens)
                    return Outcome(item, sampled, event.cause, usage, self._broken)
                case Failed():
                    raise GenerationFailed(f"the model's step failed: {event.error}")
        raise AssertionError("a round ends with Stopped or Failed")

    def push(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None] = ()) -> None:
        """Read sampled tokens, with their logprobs where there are any."""
        for token, logprob in zip_longest(tokens, logprobs):
            self.sampled.tokens.append(token)
            if logprob is not None:
                self.sampled.logprobs.append(logprob)
                self.text.sampled(logprob)
            self._count(token)
            self._take(self.parser.push(token))

    def finish(self, cause: StopCause) -> AssistantItem:
        """The round has stopped: tell what was held back, and give the item.

        A call that the end of the round cut is not part of it; neither is any call of a round that was cut, since the
        turn that it belongs to was never finished. A stop string cuts text alone: the calls before it are whole, and
        have been told.
        """
        cut = cause in (StopCause.LIMIT, StopCause.CANCELLED)
        self._take(self.parser.finish(), cut=cut)
        self._show(self.text.flush())
        self.run.leg.answer.stop_string = self.text.matched
        calls = () if cut else tuple(self._finished(call) for call in self._calls)
        return AssistantItem("".join(self._text), "".join(self._reasoning), calls, incomplete=cut)

    def _count(self, token: int) -> None:
        if self.watch is not None:
            self.watch.push(token)

    def _finished(self, call: _Call) -> ToolCall:
        return ToolCall(call.id, call.name, call.arguments, server=call.client_index is None)

    def _take(self, events: Iterable[TurnEvent], *, cut: bool = False) -> None:
        for event in events:
            if not isinstance(event, TextDelta):
                self.text.interrupt()
            match event:
                case TextDelta():
                    self._show(self.text.push(self._without_owed(event.text)))
                case ReasoningDelta() if self._is_own:
                    self._reasoning.append(event.text)
                case ReasoningDelta():
                    self._reasoning.append(event.text)
                    self._emit(ReasoningAdded(self.round, event.text))
                case CallStarted():
                    self._start(event.name)
                case CallArguments():
                    self._add_arguments(self._calls[event.index], event.text)
                case CallFinished():
                    assert self._calls[event.index].arguments == event.arguments
                case CallBroken():
                    self.run.broken_call(event)
                    # What never became a call is text, unless the round was cut in the middle of it.
                    if event.index is None and not cut:
                        self._broken = self._broken or event.reason
                        self._show(self.text.push(event.text))

    def _without_owed(self, text: str) -> str:
        """What of a text is the model's: white space between the two may be told with the model's words."""
        if not self._owed:
            return text
        owed = self._owed if text[:1] == self._owed[:1] else self._owed.lstrip()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(owed, text, strict=False))
        own = text[: sum(1 for _ in same)]
        if own:
            self._text.append(own)
        self._owed = owed[len(own) :] if len(own) == len(text) else ""
        return text[len(own) :]

    def _show(self, shown: Shown) -> None:
        if shown.text:
            self._text.append(shown.text)
            self._emit(TextAdded(self.round, shown.text, shown.logprobs))

    def _emit(self, event: RunEvent) -> None:
        if self._replayed is None:
            self.run.emit(event)

    def _start(self, name: str) -> None:
        call = _Call(new_call_id(), name)
        if name in self.run.options.client_tools:
            call.id = call.id if self._replayed is None else next(self._replayed)
            call.client_index = self.clients_so_far
            self.clients_so_far += 1
            self._emit(ClientCallStarted(self.round, call.client_index, call.id, name))
        self._calls.append(call)

    def _add_arguments(self, call: _Call, text: str) -> None:
        call.arguments += text
        if call.client_index is not None:
            self._emit(ClientCallArguments(self.round, call.client_index, text))
