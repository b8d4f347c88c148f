"""A response from its run's events: whole, or as the frames of its stream. No I/O."""

from dataclasses import replace

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.responses import events as e
from tenuto.runtime.dialects.openai.responses.answer import Head, is_cut
from tenuto.runtime.dialects.openai.responses.frames import Events, StreamEvents
from tenuto.runtime.dialects.openai.responses.output import Output
from tenuto.runtime.dialects.openai.responses.shapes import ResponseAnswer
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.loop.answer import figures
from tenuto.runtime.loop.events import Answer, RoundEnded, RunEvent

_LAST = {"completed": "response.completed", "failed": "response.failed"}


class ResponseEncoder:
    """One response: `opening`, `take` for each event, then `closing`. Made of the same events again, it is the same.

    Its frames are empty where it is sent whole, and up to event number `after` of a stream.
    """

    def __init__(self, head: Head, listed: Listed, *, streamed: bool, after: int | None = None) -> None:
        self._head = head
        self._events: Events = StreamEvents(after) if streamed else Events()
        self._output = Output(self._events, head.id.removeprefix("resp_"), head.asked, listed)
        self._rounds: list[RoundEnded] = []

    def opening(self) -> bytes:
        """The response has begun."""
        begun = self._head.begun([])
        for name in ("response.created", "response.in_progress"):
            self._events.tell(e.LifecycleEvent, name, response=begun)
        for listed in self._head.asked.lists:
            self._output.list_tools(listed)
        return self._events.take()

    def take(self, event: RunEvent) -> bytes:
        """The frames for one event."""
        if isinstance(event, RoundEnded):
            self._rounds.append(event)
        self._output.take(event)
        return self._events.take()

    def so_far(self) -> ResponseAnswer:
        """The response as it stands, while more may come."""
        return self._head.begun(self._output.items())

    def whole(self, answer: Answer, ended_at: float) -> ResponseAnswer:
        """The response, after the run's last event of it."""
        self._output.end(cut=is_cut(answer))
        return self._head.ended(self._with_own_figures(answer), self._output.items(), ended_at)

    def closing(self, answer: Answer, ended_at: float) -> bytes:
        """What ends the stream after the run's last event."""
        return self._end(self.whole(answer, ended_at))

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        self._output.end(cut=True)
        return self._end(self._head.failed(exc, self._output.items()))

    def keep_alive(self) -> bytes:
        """What a silent stream sends. Clients count it as an event, which a comment would not be for them."""
        assert isinstance(self._events, StreamEvents)
        return self._events.keep_alive()

    def _with_own_figures(self, answer: Answer) -> Answer:
        """The answer to an approval goes on with an answer whose first rounds an earlier response has counted."""
        if len(self._rounds) == len(answer.usage.rounds):
            return answer
        rounds = [one.usage for one in self._rounds]
        return replace(answer, usage=figures(rounds, answer.usage.prompt + answer.usage.completion))

    def _end(self, response: ResponseAnswer) -> bytes:
        name = _LAST.get(response.status, "response.incomplete")
        self._events.tell(e.LifecycleEvent, name, response=response)
        return self._events.take()
