"""The start of a round: what the model is held to, what it reads, and who reads what it says. Only `prepare` waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tenuto.pipelines.base import Codec, GrammarSource, ToolChoice
from tenuto.runtime.engine.messages import Reading, Round
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.constraints import prepare
from tenuto.runtime.loop.engine_client import Place
from tenuto.runtime.loop.ledgers import Prompt
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.round import RoundReader
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.text import TextStream
from tenuto.runtime.loop.unfinished import Said
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.session import Session

NOTHING_SAID = Said()


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
        return f"{self.session.uid}/{self.model.id}"

    @property
    def _codec(self) -> Codec:
        return self.run.options.codec_of(self.model.codec)

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
        prefill = options.prefill_of(reader.round)
        begun = () if prefill is None else codec.begun_with(prefill.text)
        if prefill is not None:
            reader.begin(prefill, begun)
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
        )
        return opened, reader

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
