"""What MCP servers have the model say in the middle of calls: in sequences of their own, beside their session's.

The session's sequence stays paused as it is. A sequence of a sample lives as long as its call, so that a conversation
that grows is not read again, and the engine finds whatever else of it has a cache among the principal's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from tenuto.errors import GenerationFailed, TenutoError
from tenuto.pipelines.base import Codec, GrammarSource, ToolChoice
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.pipelines.turns import CallArguments, CallBroken, CallStarted, TextDelta, TurnEvent, TurnParser
from tenuto.runtime.engine.messages import Failed, Reading, Round, RoundUsage, StopCause, Stopped, TokensSampled
from tenuto.runtime.engine.stops import StopStrings
from tenuto.runtime.loop.events import ServerSampled
from tenuto.runtime.loop.images import check_images
from tenuto.runtime.loop.ledgers import Prompt, read
from tenuto.runtime.loop.model import Model
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.runtime.loop.room import check_length
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.text import TextStream
from tenuto.runtime.loop.variables import with_variables
from tenuto.sessions.ids import new_call_id, new_hex
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, ToolSpec, UserItem
from tenuto.sessions.priority import Priority
from tenuto.sessions.session import Session
from tenuto.tools.asking import CannotAsk
from tenuto.tools.host.results import shortened
from tenuto.tools.sampling import Sample, SampleEnd, SampleRequest

TOLD_CHARACTERS = 4_000
"""Of what was asked, so much is told in the run's event."""
_ENDS = {
    StopCause.END: SampleEnd.END,
    StopCause.STOP_STRING: SampleEnd.STOP_STRING,
    StopCause.LIMIT: SampleEnd.LENGTH,
}
_THINKS = 2
"""One part in so many of what may be sampled may be reasoning, which the server does not get to read."""


@dataclass(slots=True)
class Sampler:
    """The samples of one call. Event-loop thread only. `close` frees what they have left at the engine."""

    services: Services
    run: Run
    session: Session | None
    call_id: str
    _sequence: str = field(default_factory=lambda: f"sample-{new_hex()}")
    _model: Model | None = None

    async def sample(self, request: SampleRequest) -> Sample:
        """Let the run's model go on from what a server asks, one request at a time.

        Raises:
            CannotAsk: the budget is used up, the model cannot read or do it, or its engine takes no more.
        """
        try:
            with anyio.fail_after(self.run.options.deadline_s):
                models = self.services.models
                model = models.shelf.of_run(self.run.id, models.expect(self.run.model))
                with model.uses.held():
                    return await self._sample(request, model)
        except TimeoutError:
            raise CannotAsk(f"the model did not answer within {self.run.options.deadline_s:g} s") from None
        except TenutoError as error:
            raise CannotAsk(f"the model cannot be asked this: {error}") from error

    def close(self) -> None:
        """The call is over."""
        if self._model is not None:
            self._model.engine.release(self._sequence)

    async def _sample(self, request: SampleRequest, model: Model) -> Sample:
        codec = await with_variables(model.codec, self.run.options.variables)
        check_length(codec, (item.text for item in request.items), model.context)
        _expect_seen(codec, request.items)
        await check_images(codec, request.items)
        prompt, tokens = await self._prompt(request, codec)
        most = self._most(request, model, len(tokens))
        grammar = await anyio.to_thread.run_sync(_grammar, codec, request, most)
        reader = _Reader(codec, request)
        self.run.samples.reserve(request.server, reserved := len(tokens) + most)
        usage: RoundUsage | None = None
        try:
            opened = self._begin(request, model, codec, prompt, tokens, most, grammar)
            cause, usage = await reader.read(opened)
        finally:
            if usage is None:  # it was cancelled or has failed
                model.engine.release(self._sequence)
                usage = RoundUsage(prompt=len(tokens), computed=len(tokens), sampled=reader.sampled)
            self.run.samples.settle(request.server, reserved, usage.prompt, usage.computed, usage.sampled)
        sample = reader.sample(model.id, cause)
        self._tell(request, sample, usage)
        return sample

    def _begin(
        self,
        request: SampleRequest,
        model: Model,
        codec: Codec,
        prompt: Prompt,
        tokens: Sequence[int],
        most: int,
        grammar: GrammarSource | None,
    ) -> OpenRound:
        calls = _may_call(request)
        if self._model is not None and self._model is not model:
            self.close()
        self._model, principal = model, self.run.record.principal
        round = Round(
            max_tokens=most,
            sampling=AskedSampling(temperature=request.temperature).over(model.defaults),
            stop_tokens=codec.info.stop_tokens,
            stop_strings=request.stop,
            grammar=grammar,
            reading=Reading.CALLS if calls else Reading.TURN,
            callable=tuple(tool.name for tool in request.tools) if calls and request.stop else (),
            variables=self.run.options.variables,
        )
        place = model.engine.reserve(principal)
        return model.engine.submit(
            self._sequence,
            tokens,
            round,
            principal=principal,
            place=place,
            pieces=prompt.pieces,
            priority=Priority.BACKGROUND,
        )

    async def _prompt(self, request: SampleRequest, codec: Codec) -> tuple[Prompt, Sequence[int]]:
        """What the model reads, and all of its tokens: after the conversation, its tokens are the session's own."""
        session = self.session
        if not request.with_context or session is None:
            prompt = await read(codec, request.tools, {}, 0, request.items)
            return prompt, prompt.fresh
        before = _before_calls(session.items)
        options = self.run.options
        prompt = await read(
            options.codec_of(codec), options.tools, session.ledgers, len(before), [*before, *request.items]
        )
        return prompt, prompt.all_tokens(session.ledgers)

    def _most(self, request: SampleRequest, model: Model, prompt: int) -> int:
        """How many tokens may be sampled."""
        left = self.run.samples.left(request.server, request.budget) - prompt
        if left < 1:
            raise CannotAsk(
                f"{request.server} has a budget of {request.budget} tokens for samples in one run, and what is left of"
                f" it does not suffice for this one, whose prompt has {prompt}"
            )
        if model.context - prompt < 1:
            raise CannotAsk(f"the prompt has {prompt} tokens; the model takes {model.context}")
        return min(request.max_tokens, left, model.context - prompt)

    def _tell(self, request: SampleRequest, sample: Sample, usage: RoundUsage) -> None:
        if self.run.working:
            asked = shortened("\n\n".join(item.text for item in request.items), TOLD_CHARACTERS)
            self.run.emit(
                ServerSampled(
                    max(len(self.run.rounds), 1), self.call_id, request.server, asked, sample.text, sample.calls, usage
                )
            )


@dataclass(slots=True)
class _Reader:
    """Reads what the model says in one sample."""

    codec: Codec
    request: SampleRequest
    sampled: int = 0
    _text: TextStream = field(init=False)
    _parser: TurnParser = field(init=False)
    _said: list[str] = field(default_factory=list)
    _calls: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._text = TextStream(self.codec, StopStrings(self.request.stop))
        self._parser = self.codec.parser(calls=_may_call(self.request), tools=self.request.tools)

    async def read(self, opened: OpenRound) -> tuple[StopCause, RoundUsage]:
        """Follow the round to its end. Raises GenerationFailed."""
        async for event in opened:
            match event:
                case TokensSampled():
                    self.sampled += len(event.tokens)
                    for token in event.tokens:
                        self._take(self._parser.push(token))
                case Stopped(cause=StopCause.CANCELLED):
                    raise GenerationFailed("the engine has stopped")
                case Stopped():
                    self._take(self._parser.finish())
                    self._said.append(self._text.flush().text)
                    return event.cause, event.usage
                case Failed():
                    raise GenerationFailed(f"the model's step failed: {event.error}")
        raise AssertionError("a round ends with Stopped or Failed")

    def sample(self, model: str, cause: StopCause) -> Sample:
        """What has been said. Calls that the limit has cut off are none."""
        whole = self._calls if cause is not StopCause.LIMIT else []
        calls = tuple(ToolCall(new_call_id(), name, arguments) for name, arguments in whole)
        end = SampleEnd.CALLS if calls else _ENDS[cause]
        return Sample(model, "".join(self._said), end, calls)

    def _take(self, events: Iterable[TurnEvent]) -> None:
        for event in events:
            if not isinstance(event, TextDelta):
                self._text.interrupt()
            match event:
                case TextDelta():
                    self._said.append(self._text.push(event.text).text)
                case CallStarted():
                    self._calls.append([event.name, ""])
                case CallArguments():
                    self._calls[event.index][1] += event.text
                case CallBroken(index=None):
                    self._said.append(self._text.push(event.text).text)
                case _:
                    pass


def _may_call(request: SampleRequest) -> bool:
    return bool(request.tools) and request.choice != "none"


def _grammar(codec: Codec, request: SampleRequest, most: int) -> GrammarSource | None:
    tools: Sequence[ToolSpec] = request.tools
    choice = ToolChoice(request.choice) if tools else ToolChoice.NONE
    grammar = codec.grammar(tools, choice, parallel=True)
    return codec.bounded(grammar, most // _THINKS, calls=_may_call(request)) if codec.info.reasons else grammar


def _expect_seen(codec: Codec, items: Sequence[Item]) -> None:
    """Refuse what the model cannot read: a server is to know, where a person would be told by a note."""
    for item in items:
        if isinstance(item, UserItem | ToolResultItem):
            for attachment in item.attachments:
                if attachment.kind not in codec.info.modalities:
                    reads = ", ".join(sorted(codec.info.modalities))
                    raise CannotAsk(f"a message has {attachment.mime_type}, and the model reads {reads} alone")


def _before_calls(items: Sequence[Item]) -> Sequence[Item]:
    """The conversation before the model's calls of which one is under way: what follows them is not there yet."""
    place = next((at for at in range(len(items) - 1, -1, -1) if isinstance(items[at], AssistantItem)), len(items))
    return items[:place]
