"""From a command to an open round: the tokens that it goes on from, what of the cache serves them, what holds it."""

import time
from collections.abc import Iterable

from tenuto.errors import ContextTooLong, InvalidRequest
from tenuto.pipelines.base import Constraint, Pipeline
from tenuto.runtime.engine.messages import WINDOW, Round, Submit
from tenuto.runtime.engine.residency import CacheResidency
from tenuto.runtime.engine.sequence import OpenRound, PlacedPiece, Sequence
from tenuto.runtime.engine.stops import Stops
from tenuto.sessions.image_tokens import is_image_token, spans_in
from tenuto.sessions.tokens import Tokens


def open_round(sequence: Sequence, command: Submit, pipeline: Pipeline, residency: CacheResidency) -> OpenRound:
    """Give a sequence its prompt, and make its round. Engine thread only.

    Raises:
        InvalidRequest, ContextTooLong, and whatever a grammar or a sampler is refused with: none is left open then.
    """
    round, codec = command.round, pipeline.codec.with_variables(command.round.variables)
    diverged = _take_prompt(sequence, command, pipeline, residency)
    prompt, said = len(sequence.tokens), _said(command, codec.info.vocabulary, pipeline.backend.info.context)
    constraint = None if round.grammar is None else codec.constraint(round.grammar)
    stops = Stops(codec, round) if round.stop_strings else None
    _go_on(round, said, constraint, stops)
    sampler = pipeline.backend.sampler(round.sampling, sequence.tokens, said)
    # Nothing below fails, so that no error leaves a sampler to close.
    sequence.tokens.extend(said)
    return OpenRound(
        round=round,
        arrived=time.monotonic(),
        prompt=prompt,
        computed_before=sequence.computed_before,
        diverged=diverged,
        constraint=constraint,
        stops=stops,
        priority=command.priority,
        sampled=len(said),
        window=max(1, WINDOW - command.unread),
        sampler=sampler,
    )


def _said(command: Submit, vocabulary: int, context: int) -> Tokens:
    """What the round has sampled already, where it can go on after that."""
    said = _valid(command.said, vocabulary)
    room = min(command.round.max_tokens, context - command.known.length - len(command.tokens))
    if said is None or (said and len(said) >= room):
        raise InvalidRequest("what a round has said are tokens of the vocabulary, and fewer than it may say")
    return said


def _go_on(round: Round, said: Iterable[int], constraint: Constraint | None, stops: Stops | None) -> None:
    """Bring what holds a round to where it stood when it had sampled these tokens."""
    for token in round.begun:
        if constraint is not None:
            constraint.accept(token)
        if stops is not None:
            stops.skip(token)
    for token in said:
        if constraint is not None:
            constraint.accept(token)
        if token in round.stop_tokens or (stops is not None and stops.push(token)):
            raise InvalidRequest("a round that has ended does not go on")


def _take_prompt(sequence: Sequence, command: Submit, pipeline: Pipeline, residency: CacheResidency) -> bool:
    """Give a sequence the tokens to go on from, and keep what of its cache they have use for.

    True where they go on otherwise than what had a cache.
    """
    new, known = _checked(command, pipeline.codec.info.vocabulary), command.known.length
    images = _placed(new, command, sequence)
    tokens, context = known + len(new), pipeline.backend.info.context
    if tokens > context:
        raise ContextTooLong(tokens, context)
    computed_before, same = sequence.computed_before, min(sequence.computed_before, known)
    if computed_before > known:
        same += sequence.tokens.copy(computed_before, since=known).shared(new)
    sequence.tokens.cut(known)
    sequence.tokens.extend(new)
    sequence.images, sequence.kept = images, min(sequence.kept, same)
    sequence.computed_before = max(same, min(command.computed_before, tokens))
    residency.keep(sequence, sequence.uncut(same))
    return same < computed_before


def _checked(command: Submit, vocabulary: int) -> Tokens:
    """Refuse what would make a whole step invalid."""
    new = _valid(command.tokens, vocabulary, with_images=True)
    if new is None or not (new or command.known.length):
        raise InvalidRequest("a prompt has tokens, and each is in the vocabulary")
    return new


def _valid(tokens: Iterable[int], vocabulary: int, *, with_images: bool = False) -> Tokens | None:
    """The tokens, if all of them are in the vocabulary, or stand for images where these are looked at elsewhere."""
    try:
        read = Tokens(tokens)
    except (OverflowError, TypeError):
        return None
    if max(read, default=0) < vocabulary:
        return read
    is_valid = with_images and all(token < vocabulary or is_image_token(token) for token in read)
    return read if is_valid else None


def _placed(new: Tokens, command: Submit, sequence: Sequence) -> tuple[PlacedPiece, ...]:
    """The pieces of images in what the sequence shall have, those that it has among them.

    Raises:
        InvalidRequest: an image that stands there did not come with the tokens.
    """
    known = command.known.length
    kept = tuple(one for one in sequence.images if one.begin < known)
    pieces = {piece.span: piece for piece in command.pieces}
    found = []
    for begin, span in spans_in(new):
        if span not in pieces:
            raise InvalidRequest("an image that stands in the prompt is missing")
        found.append(PlacedPiece(known + begin, known + begin + len(span), pieces[span]))
    if kept and kept[-1].end > known:
        raise InvalidRequest("a prompt is not cut in the middle of an image")
    return (*kept, *found)
