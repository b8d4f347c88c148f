"""From a command to an open round: the tokens that it goes on from, what of the cache serves them, what holds it."""

import time

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.base import Pipeline
from tenuto.runtime.engine.messages import Submit
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.sequence import OpenRound, Sequence
from tenuto.runtime.engine.stops import Stops
from tenuto.sessions.tokens import Tokens


def open_round(sequence: Sequence, command: Submit, pipeline: Pipeline, residency: CacheResidency) -> OpenRound:
    """Give a sequence its prompt, and make its round. Engine thread only.

    Raises:
        InvalidRequest, ContextTooLong, and whatever a grammar or a sampler is refused with: none is left open then.
    """
    round, codec = command.round, pipeline.codec
    diverged = _take_prompt(sequence, command, pipeline, residency)
    return OpenRound(
        round=round,
        arrived=time.monotonic(),
        prompt=len(sequence.tokens),
        computed_before=sequence.computed_before,
        diverged=diverged,
        constraint=None if round.grammar is None else codec.constraint(round.grammar),
        stops=Stops(codec, round) if round.stop_strings else None,
        # The last, so that an error leaves none to close.
        sampler=pipeline.backend.sampler(round.sampling, sequence.tokens),
    )


def _take_prompt(sequence: Sequence, command: Submit, pipeline: Pipeline, residency: CacheResidency) -> bool:
    """Give a sequence the tokens to go on from, and keep what of its cache they have use for.

    True where they go on otherwise than what had a cache.
    """
    new, known = _checked(command, pipeline.codec.info.vocabulary), command.known.length
    tokens, context = known + len(new), pipeline.backend.info.context
    if tokens > context:
        raise ContextTooLong(tokens, context)
    computed_before, same = sequence.computed_before, min(sequence.computed_before, known)
    if computed_before > known:
        same += sequence.tokens.copy(computed_before, since=known).shared(new)
    sequence.tokens.cut(known)
    sequence.tokens.extend(new)
    sequence.computed_before = max(same, min(command.computed_before, tokens))
    residency.keep(sequence, same)
    return same < computed_before


def _checked(command: Submit, vocabulary: int) -> Tokens:
    """Refuse what would make a whole step invalid."""
    try:
        new = Tokens(command.tokens)
        if (new or command.known.length) and max(new, default=0) < vocabulary:
            return new
    except (OverflowError, TypeError):
        pass
    raise InvalidRequest("a prompt has tokens, and each is in the vocabulary")
