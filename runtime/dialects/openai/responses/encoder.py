"""A response from its run's events: whole, or as the frames of its stream. No I/O."""

from tenuto.errors import TenutoError
from tenuto.runtime.dialects.openai.responses import events as e
from tenuto.runtime.dialects.openai.responses.answer import Head, is_cut
from tenuto.runtime.dialects.openai.responses.frames import Events, StreamEvents
from tenuto.runtime.dialects.openai.responses.output import Output
from tenuto.runtime.dialects.openai.responses.shapes import ResponseAnswer
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.loop.events import Answer, RunEvent
from tenuto.tools.registry import Exported

_LAST = {"completed": "response.completed", "failed": "response.failed"}


class ResponseEncoder:
    """One response: `opening`, `take` for each event, then `closing`. Its frames are empty where it is sent whole."""

    def __init__(self, head: Head, listed: Listed, *, streamed: bool) -> None:
        self._head, self._listed = head, listed
        self._events: Events = StreamEvents() if streamed else Events()
        request = head.request
        self._output = Output(
            self._events,
            head.id.removeprefix("resp_"),
            request.callables,
            listed,
            holds_calls=bool(request.turn.tools.servers) or not request.turn.tools.given,
            approved=None if request.approval is None else request.approval.request_id,
        )

    def opening(self) -> bytes:
        """The response has begun."""
        begun = self._head.begun([])
        for name in ("response.created", "response.in_progress"):
            self._events.tell(e.LifecycleEvent, name, response=begun)
        for label in self._head.request.to_list:
            self._output.list_tools(label, self._allowed(label))
        return self._events.take()

    def take(self, event: RunEvent) -> bytes:
        """The frames for one event."""
        self._output.take(event)
        return self._events.take()

    def whole(self, answer: Answer) -> ResponseAnswer:
        """The response, after the run's last event of it."""
        self._output.end(cut=is_cut(answer))
        return self._head.ended(answer, self._output.items())

    def closing(self, answer: Answer) -> bytes:
        """What ends the stream after the run's last event."""
        return self._end(self.whole(answer))

    def failure(self, exc: TenutoError) -> bytes:
        """What ends the stream where something else than the run failed."""
        self._output.end(cut=True)
        return self._end(self._head.failed(exc, self._output.items()))

    def keep_alive(self) -> bytes:
        """What a silent stream sends. Clients count it as an event, which a comment would not be for them."""
        assert isinstance(self._events, StreamEvents)
        return self._events.keep_alive()

    def _allowed(self, label: str) -> list[Exported]:
        """The tools of a server that the request lets the model see."""
        allowed = self._head.request.turn.tools.servers[label]
        own = self._listed.get(label, ())
        return [one for one in own if allowed is None or one.name in allowed or one.tool.spec.name in allowed]

    def _end(self, response: ResponseAnswer) -> bytes:
        name = _LAST.get(response.status, "response.incomplete")
        self._events.tell(e.LifecycleEvent, name, response=response)
        return self._events.take()
