"""Several answers to one chat request (`n`): turns that nobody keeps, run beside each other, and freed together."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio

from tenuto.errors import NotFound, TenutoError
from tenuto.runtime.dialects.openai.chat.answer import completion_id
from tenuto.runtime.dialects.openai.chat.chunks import ChunkEncoder
from tenuto.runtime.dialects.openai.chat.request import ChatRequest
from tenuto.runtime.dialects.openai.functions import check_choice
from tenuto.runtime.dialects.openai.sampling import seeded
from tenuto.runtime.http.errors import INTERNAL
from tenuto.runtime.http.sse import DONE
from tenuto.runtime.loop.events import Answer
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus

logger = logging.getLogger(__name__)


def turns(chat: ChatRequest) -> list[Turn]:
    """The turn of each choice: kept in memory only, without tools of servers, with seeds one after the other.

    Raises:
        InvalidRequest: without tools of servers, the tool choice cannot be met.
    """
    tools = replace(chat.turn.tools, given=True)
    check_choice(tools)
    one = replace(chat.turn, tools=tools, stored=False, match=False, wants_events=False)
    return [
        replace(one, sampling=replace(one.sampling, seed=seeded(one.sampling.seed, number))) for number in range(chat.n)
    ]


@dataclass(frozen=True, slots=True)
class ChoiceRuns:
    """The runs of one request. Whoever has started them closes them."""

    runner: LoopPort
    principal: Principal
    runs: list[Follower]

    @classmethod
    async def start(cls, runner: LoopPort, of: Sequence[Turn]) -> "ChoiceRuns":
        """Begin all turns, or none: where one is not admitted, those before it are closed."""
        choices = cls(runner, of[0].principal, [])
        try:
            for turn in of:
                choices.runs.append(await runner.start(turn))
        except BaseException:
            await choices.close()
            raise
        return choices

    async def answers(self) -> list[Answer]:
        """All answers in order, up to and with the first that has failed."""
        found: list[Answer] = []
        for run in self.runs:
            found.append(await run.answer())
            if found[-1].status is RunStatus.FAILED:
                break
        return found

    async def disconnected(self) -> None:
        """The client is gone: nobody else can ever read these."""
        await self.close()

    async def close(self) -> None:
        """Stop what still goes on, and forget the sessions, so that they hold neither memory nor cache."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for run in self.runs:
                    group.start_soon(self._forget, run)

    async def _forget(self, run: Follower) -> None:
        with suppress(NotFound):
            await self.runner.delete_session(self.principal, run.session_id)


class ChoiceFrames:
    """The frames of a stream with several choices. The first that fails ends the stream with its error."""

    def __init__(self, choices: ChoiceRuns, chat: ChatRequest) -> None:
        first = choices.runs[0]
        self._choices = choices
        self._failure: bytes | None = None
        self._encoders = [
            ChunkEncoder(
                completion_id(first.leg_id),
                run.id,
                run.session_id,
                run.model,
                first.created_at,
                named_events=False,
                include_usage=chat.include_usage,
                logprobs=chat.turn.sampling.logprobs is not None,
                index=index,
            )
            for index, run in enumerate(choices.runs)
        ]

    def parts(self) -> list[AsyncGenerator[bytes, None]]:
        """The frames of each choice."""
        return [self._part(run, encoder) for run, encoder in zip(self._choices.runs, self._encoders, strict=True)]

    async def closing(self) -> AsyncGenerator[bytes, None]:
        """The frames after all choices."""
        last = self._failure or self._encoders[0].closing_of([run.snapshot() for run in self._choices.runs])
        await self._choices.close()  # first, so that all is free when the client sees the end
        yield last

    async def _part(self, run: Follower, encoder: ChunkEncoder) -> AsyncGenerator[bytes, None]:
        try:
            yield encoder.opening()
            async for _, event in run.events():
                yield encoder.encode(event)
            answer = run.snapshot()
            if answer.status is RunStatus.FAILED:
                await self._fail(encoder.closing(answer))
            elif self._failure is None:
                yield encoder.ending(answer)
        except TenutoError as exc:
            await self._fail(encoder.failure(exc))
        except Exception:
            logger.exception("the stream of run %s failed", run.id)
            await self._fail(encoder.failure(TenutoError(INTERNAL)))

    async def _fail(self, last: bytes) -> None:
        if self._failure is None:
            assert last.endswith(DONE)
            self._failure = last
            await self._choices.close()
