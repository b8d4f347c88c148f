"""The start of a round: what the model is held to, what it reads, and who reads what it says. Only `prepare` waits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tenuto.pipelines.base import Codec, GrammarSource, ToolChoice
from tenuto.runtime.engine.messages import Reading, Round
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.constraints import prepare
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.expectations import Tool
from tenuto.runtime.loop.ledgers import Prompt
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.round import RoundReader
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.text import TextStream
from tenuto.runtime.loop.unfinished import Said
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.priority import Priority
from tenuto.sessions.session import Session

NOTHING_SAID = Said()


def sequence_of(session: Session, model: Model) -> str:
    """The name of a session's sequence at a model's engine."""
    return f"{session.uid}/{model.id}"


@dataclass(frozen=True, slots=True)
class RoundStarter:
    """Begins the rounds of one leg. Event-loop thread only."""

    services: Services
    run: Run
    session: Session
    model: Model

    @property
    def sequence(self) -> str:
        """The name of the leg's sequence at its model's engine."""
        return sequence_of(self.session, self.model)

    @property
    def _codec(self) -> Codec:
        return self.run.options.codec_of(self.model.codec)

    @property
    def _priority(self) -> Priority:
        """What the request says, else whether somebody waits for the answer."""
        by_itself = Priority.BACKGROUND if self.run.leg.is_alone else Priority.INTERACTIVE
        return self.run.options.priority or by_itself

    def expect_results(self, tools: Iterable[Tool | None]) -> None:
        """Tell the engine when the results of calls are expected that are about to be made at once."""
        expected = self.services.expectations.of_calls(tool for tool in tools if tool is not None)
        self.model.engine.expect(self.sequence, expected.seconds, expected.spread_s)

    async def prepare(self, found: Sequence[ToolSpec], *, is_last: bool) -> None:
        """Compile beside the event loop what a round will need that may call what searches have found."""
        await prepare(self._codec, self.run.options, self._choice(is_last=is_last), found)

    def begin(
        self,
        prompt: Prompt,
        tokens: int,
        place: Place | None,
        *,
        is_last: bool,
        found: Sequence[ToolSpec] = (),
        said: Said = NOTHING_SAID,
    ) -> tuple[OpenRound, RoundReader]:
        """Let the model go on after a prompt by at most so many tokens, of which it has `said` some already. It may
        also call what searches have `found`."""
        run, options, codec = self.run, self.run.options, self._codec
        choice, grammar = self._grammar(found, is_last=is_last)
        calls = bool(options.tools) and choice is not ToolChoice.NONE
        known = (*options.tools, *found)
        clients = len(run.leg.answer.calls) - len(said.call_ids)
        text = TextStream(codec, StopStrings(options.stop))
        parser = codec.parser(calls=calls, tools=known)
        reader = RoundReader(run, len(run.rounds) + 1, parser, text, codec.reasoning_watch(), clients)
        begun = self._read_prefill(reader)
        reader.replay(said)
        round = Round(
            max_tokens=tokens,
            sampling=options.sampling,
            stop_tokens=codec.info.stop_tokens,
            stop_strings=options.stop,
            grammar=grammar,
            reading=Reading.CALLS if calls else Reading.TURN,
            callable=tuple(tool.name for tool in known) if calls and options.stop else (),
            variables=options.variables,
            begun=begun,
        )
        opened = self.model.engine.submit(
            self.sequence,
            prompt.fresh,
            round,
            prompt.computed_before if run.rounds else run.computed_before,
            principal=self.session.principal,
            place=place,
            named=self._named(prompt),
            known=prompt.known,
            whole=partial(prompt.all_tokens, self.session.ledgers),
            said=said.tokens,
            pieces=prompt.pieces,
            kept_as=self.session.uid if self.session.stored else "",
            priority=self._priority,
        )
        return opened, reader

    def _read_prefill(self, reader: RoundReader) -> tuple[int, ...]:
        """Read what of the turn its client has written; its tokens, for what holds and reads the round."""
        prefill = self.run.options.prefill_of(reader.round)
        if prefill is None:
            return ()
        begun = self._codec.begun_with(prefill.text)
        reader.begin(prefill, begun)
        return begun

    def _named(self, prompt: Prompt) -> int:
        ledger = self.session.ledgers.get(prompt.fingerprint)
        if ledger is None:
            return 0
        return self.services.shared_prefixes.of(ledger, self.session.items, self._codec, self.run.options.tools)

    def _choice(self, *, is_last: bool) -> ToolChoice:
        """What holds for calls in the round that is to begin."""
        run, choice = self.run, self.run.options.choice
        if is_last or not run.options.tools:
            return ToolChoice.NONE
        if choice is ToolChoice.REQUIRED and len(run.rounds) + 1 != run.leg.first_round:
            return ToolChoice.AUTO  # what was required has been done
        return choice

    def _grammar(self, found: Sequence[ToolSpec], *, is_last: bool) -> tuple[ToolChoice, GrammarSource | None]:
        run, options = self.run, self.run.options
        choice = self._choice(is_last=is_last)
        tools = options.callable(choice, found)
        grammar = self._codec.grammar(tools, choice, parallel=options.parallel, answer=options.answer)
        if options.thinking_budget is not None:
            left = max(0, options.thinking_budget - sum(usage.reasoning for usage in run.request_rounds))
            calls = bool(options.tools) and choice is not ToolChoice.NONE
            grammar = self._codec.bounded(grammar, left, calls=calls)
        return choice, grammar
