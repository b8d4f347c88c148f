"""One step: who is fed how much, what is sampled from it, and where a round stops. Engine thread only.

A step that raises fails what was in it and nothing else.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from tenuto.errors import GenerationFailed
from tenuto.pipelines.backend import Backend, Bitmask, Pending, Row, RowFailed, Sampled, TokenLogprob
from tenuto.runtime.engine.drafting import Draft, Speculation
from tenuto.runtime.engine.ends import Ends
from tenuto.runtime.engine.image_turns import ImageTurns, Turn
from tenuto.runtime.engine.messages import Event, State, StopCause, TokensSampled
from tenuto.runtime.engine.planner import Planner
from tenuto.runtime.engine.roster import Roster
from tenuto.runtime.engine.sequence import Sequence, SequenceTrigger

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fed:
    """What a step feeds of a sequence: so many of its tokens, and a draft behind them."""

    sequence: Sequence
    tokens: int
    draft: Draft | None = None


class Stepper:
    """Feeds the sequences of one engine, and counts. `tell` takes each event; `computed` how many tokens of prompts a
    step has computed, and its seconds.
    """

    def __init__(
        self,
        backend: Backend,
        planner: Planner,
        roster: Roster,
        ends: Ends,
        images: ImageTurns,
        speculation: Speculation,
        tell: Callable[[Event], None],
        computed: Callable[[int, float], None],
    ) -> None:
        self._backend, self._planner = backend, planner
        self._roster, self._ends, self._images, self._speculation = roster, ends, images, speculation
        self._tell, self._tell_computed = tell, computed
        self.steps = self.computed = self.sampled = 0

    def step(self) -> bool:
        """Feed everybody, or a piece of an image to one of them: these take turns. False where all who could be fed
        wait for an image."""
        roster = self._roster
        at_images = [s for s in roster.prefilling.values() if s.next_piece is not None]
        text = [s for s in roster.prefilling.values() if s.next_piece is None]
        if (turn := self._images.choose(at_images, others=bool(text or roster.decoding))) is not None:
            self._feed_image(turn)
            return True
        if not (text or roster.decoding):
            return False
        served = self._planner.shares(text)
        drafts = self._drafts(served)
        fed: list[Fed] = []
        rows: list[Row] = []
        for sequence, tokens in served:
            draft = drafts.get(sequence.id)
            if (row := self._row(sequence, tokens, draft)) is not None:
                fed.append(Fed(sequence, tokens, draft))
                rows.append(row)
        if rows:
            self._feed(fed, rows)
        return True

    def _drafts(self, served: list[tuple[Sequence, int]]) -> dict[str, Draft]:
        """What is guessed to come behind the tokens of some of those whose next token is sampled."""
        room = self._backend.info.batch_tokens - sum(tokens for _, tokens in served)
        try:
            sampled = [sequence for sequence, tokens in served if tokens == sequence.pending]
            return self._speculation.drafts(sampled, len(served), room)
        except Exception:  # a guess is a convenience
            logger.exception("nothing could be drafted")
            return {}

    def _feed_image(self, turn: Turn) -> None:
        sequence, placed = turn.sequence, turn.sequence.next_piece
        if isinstance(turn.made, Exception):
            self._ends.fail(sequence, turn.made)
        elif placed is not None and (row := self._row(sequence, placed.end - placed.begin)) is not None:
            self._roster.send_back(sequence)
            self._feed([Fed(sequence, len(row.tokens))], [replace(row, embeddings=turn.made)])

    def _feed(self, fed: list[Fed], rows: list[Row]) -> None:
        began = time.monotonic()
        try:
            pending = self._backend.launch(rows)
            samples = self._backend.collect(pending)
        except Exception as error:  # the caches of the batch are undefined now; all others are as they were
            logger.exception("a step over %d sequences failed", len(rows))
            for one in fed:
                self._ends.fail(one.sequence, error)
            return
        finally:
            self.steps += 1
        took_s = time.monotonic() - began
        prefill = sum(one.tokens for one in fed if one.sequence.state is State.PREFILLING)
        self._tell_computed(prefill, took_s)
        decoding = sum(one.sequence.state is State.DECODING for one in fed)
        if rows[0].embeddings is None:
            self._planner.bystanders.stepped(decoding, prefill, took_s)
        if not prefill:
            self._speculation.stepped(len(fed), [one.draft for one in fed if one.draft is not None], took_s)
        self._advance(fed, pending, samples)

    def _row(self, sequence: Sequence, tokens: int, draft: Draft | None = None) -> Row | None:
        assert sequence.open is not None
        assert sequence.slot is not None
        start = sequence.cached
        if tokens < sequence.pending:
            return Row(sequence.slot, start, sequence.tokens[start : start + tokens])
        try:
            mask = self._mask(sequence)
        except Exception as error:  # a grammar that fails is its own sequence's affair
            logger.exception("the grammar of sequence %s failed", sequence.id)
            self._ends.fail(sequence, error)
            return None
        drafted = () if draft is None else draft.tokens
        return Row(sequence.slot, start, sequence.tokens[start:], sequence.open.sampler, mask, draft=drafted)

    def _advance(self, fed: list[Fed], pending: Pending, samples: Sampled) -> None:
        now = time.monotonic()
        for row, (one, sample) in enumerate(zip(fed, samples, strict=True)):
            sequence = one.sequence
            sequence.cached += one.tokens
            assert sequence.open is not None
            if sequence.state is State.PREFILLING:
                sequence.open.computed += one.tokens
                self.computed += one.tokens
            if sample is None:
                continue
            if sequence.state is State.PREFILLING and not isinstance(sample, RowFailed):
                self._roster.on(sequence, SequenceTrigger.READ)
                if sequence.open.first_token is None:
                    sequence.open.first_token = now
            self._take(one, sample, partial(self._backend.sample_after, pending, row))

    def _take(self, one: Fed, sample: "_Sample", sample_after: Callable[[int, Bitmask | None], "_Sample"]) -> None:
        """Tokens have been sampled, the first one and those behind what was right of a draft: keep them, tell them, and
        stop where they say so."""
        sequence, draft = one.sequence, () if one.draft is None else one.draft.tokens
        taken: list[int] = []
        told: list[TokenLogprob] = []
        end: _End = None
        try:
            while end is None:
                if isinstance(sample, RowFailed):
                    raise sample.error
                token = sample if isinstance(sample, int) else sample.token
                taken.append(token)
                if not isinstance(sample, int):
                    told.append(sample)
                end = self._accept(sequence, token)
                right = len(taken)
                if end is not None or right > len(draft) or draft[right - 1] != token:
                    break
                sample = sample_after(right, self._mask(sequence))
        except Exception as error:  # a grammar that fails, or a sampler, is its own sequence's affair
            end = error
        if taken:
            self._tell(TokensSampled(sequence.id, tuple(taken), tuple(told)))
        self._end(sequence, self._verified(one, taken) or end)

    def _accept(self, sequence: Sequence, token: int) -> "_End":
        """Keep a token that has been sampled; what the round comes to with it, if anything."""
        opened = sequence.open
        assert opened is not None
        sequence.tokens.append(token)
        opened.sampled += 1
        opened.window -= 1
        self.sampled += 1
        if opened.constraint is not None:
            opened.constraint.accept(token)
        if token in opened.round.stop_tokens:
            return StopCause.END
        if opened.stops is not None and opened.stops.push(token):
            return StopCause.STOP_STRING
        if opened.sampled >= opened.round.max_tokens or len(sequence.tokens) >= self._backend.info.context:
            return StopCause.LIMIT
        return None if opened.window else SequenceTrigger.BLOCK

    def _verified(self, one: Fed, taken: list[int]) -> Exception | None:
        """Keep what was right of a draft and cut off the rest; why that cannot be done, where it cannot."""
        sequence, draft = one.sequence, one.draft
        if draft is None:
            return None
        verified = list(zip(taken, draft.tokens, strict=False))
        right = next((at for at, (token, guess) in enumerate(verified) if token != guess), len(verified))
        self._speculation.verified(sequence, draft, right, ended=right < len(verified))
        # Of a round that has ended within its draft, the last token is still to be fed, as of any other.
        kept = max(min(right, len(taken) - 1), 0)
        sequence.cached += kept
        if kept == len(draft.tokens):
            return None
        assert sequence.slot is not None
        try:
            if self._backend.truncate(sequence.slot, sequence.cached):
                return None
        except Exception as error:
            return error
        return GenerationFailed("what was wrong of a draft cannot be cut off")

    def _end(self, sequence: Sequence, end: "_End") -> None:
        match end:
            case StopCause():
                self._ends.stop(sequence, end)
            case SequenceTrigger():
                self._roster.on(sequence, end)
            case Exception():
                logger.error("sampling for sequence %s failed", sequence.id, exc_info=end)
                self._ends.fail(sequence, end)

    @staticmethod
    def _mask(sequence: Sequence) -> Bitmask | None:
        assert sequence.open is not None
        constraint = sequence.open.constraint
        return None if constraint is None else constraint.mask()


_Sample = int | TokenLogprob | RowFailed
_End = StopCause | Literal[SequenceTrigger.BLOCK] | Exception | None
"""What a round has come to."""
