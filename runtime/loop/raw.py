"""Raw completions: tokens in, what the model makes of them out. No session, no template, no tools."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import anyio

from tenuto.errors import ContextTooLong, GenerationFailed, InvalidRequest
from tenuto.pipelines.backend import Sampling
from tenuto.runtime.engine.messages import Failed, Round, RoundUsage, StopCause, Stopped, TokensSampled
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.constraints import check_bias
from tenuto.runtime.loop.events import TextLogprob
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.text import Shown, TextStream
from tenuto.sessions.ids import new_hex
from tenuto.sessions.principal import Principal
from tenuto.sessions.priority import Priority


@dataclass(frozen=True, slots=True)
class RawRequest:
    """What to go on from, and what the going on is held to. `model` None or `default` is the first."""

    principal: Principal
    model: str | None
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    priority: Priority = Priority.INTERACTIVE


@dataclass(frozen=True, slots=True)
class RawPiece:
    """A piece of the text, the tokens that were sampled since the piece before, and the logprobs of those that it has
    brought.
    """

    text: str
    logprobs: tuple[TextLogprob, ...] = ()
    tokens: tuple[int, ...] = ()


class RawRun:
    """A completion under way: iterate over it once, to its end, or close it. Event-loop thread only.

    Its sequence and cache are gone when it is over. `ended` is told of it then.

    Raises:
        InvalidRequest: the prompt is empty or no tokens of this model, or nothing may be sampled.
        ContextTooLong: the prompt leaves no room for an answer.
        Overloaded, ShuttingDown: the engine takes no more.
        ModelNotLoaded: the model is being unloaded.
    """

    def __init__(self, model: Model, request: RawRequest, ended: Callable[["RawRun"], None]) -> None:
        _check(model, request)
        self.model = model
        self.usage = RoundUsage()
        """What it took; whole once `cause` is known."""
        self.cause: StopCause | None = None
        """Why it stopped; None while it goes on, and where it failed or was closed."""
        self._ended = ended
        self._decoder = model.codec.decoder()
        self._text = TextStream(model.codec, StopStrings(request.stop))
        self._tokens: list[int] = []
        self._sequence = f"raw-{new_hex()}"
        self._over = False
        model.uses.take()
        try:
            self._round = self._begin(request)
        except BaseException:
            model.uses.give_back()
            raise

    def _begin(self, request: RawRequest) -> OpenRound:
        model = self.model
        tokens = min(request.max_tokens, model.context - len(request.prompt))
        round = Round(tokens, request.sampling, model.codec.info.stop_tokens, request.stop)
        principal = request.principal.id
        place = model.engine.reserve(principal)
        return model.engine.submit(
            self._sequence, request.prompt, round, principal=principal, place=place, priority=request.priority
        )

    @property
    def was_cut(self) -> bool:
        """Whether it stopped because it may have no more tokens."""
        return self.cause is StopCause.LIMIT

    @property
    def stopped_by(self) -> str | None:
        """The stop string that has come."""
        return self._text.matched

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RawPiece:
        """The next piece.

        Raises:
            GenerationFailed: the engine failed this sequence.
        """
        while not self._over:
            event = await anext(self._round)
            match event:
                case TokensSampled():
                    self._tokens += event.tokens
                    piece = self._read(event)
                case Stopped():
                    self.cause, self.usage = event.cause, event.usage
                    piece = self._finish()
                    self.close()
                case Failed():
                    self.usage = event.usage
                    self.close()
                    raise GenerationFailed(f"the model's step failed: {event.error}")
            if piece.text:
                tokens, self._tokens = self._tokens, []
                return RawPiece(piece.text, piece.logprobs, tuple(tokens))
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop within a step and free the cache. Does nothing once it is over."""
        if not self._over:
            self._over = True
            self.model.engine.release(self._sequence)
            self.model.uses.give_back()
            self._ended(self)

    def _read(self, event: TokensSampled) -> Shown:
        for logprob in event.logprobs:
            if logprob is not None:
                self._text.sampled(logprob)
        return self._text.push("".join(map(self._decoder.push, event.tokens)))

    def _finish(self) -> Shown:
        last, rest = self._text.push(self._decoder.flush()), self._text.flush()
        return Shown(last.text + rest.text, last.logprobs + rest.logprobs)


class RawRuns:
    """Those that are under way. Event-loop thread only."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._open: set[RawRun] = set()
        self._ends = anyio.Event()

    def begin(self, request: RawRequest) -> RawRun:
        """Begin one, which whoever reads it must read to its end or close. Raises what `RawRun` does, and NotFound."""
        run = RawRun(self._models.find(request.model), request, self._ended)
        self._open.add(run)
        return run

    def close(self) -> None:
        """Stop all of them."""
        for run in list(self._open):
            run.close()

    async def rest(self) -> None:
        """Return when none is under way."""
        while self._open:
            self._ends = anyio.Event()
            await self._ends.wait()

    def _ended(self, run: RawRun) -> None:
        self._open.discard(run)
        self._ends.set()


def _check(model: Model, request: RawRequest) -> None:
    vocabulary = model.codec.info.vocabulary
    if not request.prompt:
        raise InvalidRequest("the prompt has no tokens to go on from", "prompt")
    if not 0 <= min(request.prompt) <= max(request.prompt) < vocabulary:
        raise InvalidRequest(f"the prompt has a token beyond the vocabulary of {vocabulary}", "prompt")
    if request.max_tokens < 1:
        raise InvalidRequest("max_tokens: must be at least 1", "max_tokens")
    if len(request.prompt) >= model.context:
        raise ContextTooLong(len(request.prompt), model.context)
    check_bias(model.codec, request.sampling)
