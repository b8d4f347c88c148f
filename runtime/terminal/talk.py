"""A conversation with the server: messages out, answers shown while they come, approvals asked, Ctrl-C obeyed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tenuto.errors import TenutoError
from tenuto.runtime.terminal.client import Refused, Remote, is_missing, session_path
from tenuto.runtime.terminal.display import ARGUMENTS, Display
from tenuto.runtime.terminal.events import OfRun, events_in, last_number, of_chunks, of_events
from tenuto.runtime.terminal.offers import Content
from tenuto.runtime.terminal.words import arguments_of, shortened

NOBODY = "Nobody is there to approve this call."
"""What the model reads where a call must be approved and there is no terminal."""


class Ending(StrEnum):
    """How a message's answer ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer to a call that needs approval."""

    approve: bool
    always: bool = False
    message: str | None = None


Decide = Callable[[str], ApprovalAnswer]
"""Asks a person about a call, given in words."""
AnswerQuestion = Callable[[dict[str, Any]], dict[str, Any]]
"""Asks a person what an MCP server asks; gives the body of the answer."""


class Talk:
    """One session, or none, at one server. KeyboardInterrupt while it answers stops the answer, not the talk."""

    def __init__(
        self, remote: Remote, display: Display, decide: Decide, model: str, session: str | None, answer: AnswerQuestion
    ) -> None:
        self._remote, self._display, self._decide, self._model = remote, display, decide, model
        self._answer = answer
        self.session = session
        self._run_id: str | None = None

    def send(self, content: Content) -> Ending:
        """Send a message and show its answer. Raises TenutoError where the server takes no message."""
        return self._interruptible(lambda: self._send(content))

    def resume(self) -> bool:
        """Show what the session holds and attend to what it waits for; false where it is a new one."""
        assert self.session is not None
        try:
            items = self._remote.get(session_path(self.session))["items"]
        except Refused as exc:
            if is_missing(exc):
                return False
            raise
        self._display.history(items)
        sessions = self._remote.sessions(implicit=True)
        run_id = next((each["open_run"] for each in sessions if each["id"] == self.session), None)
        if run_id is not None:
            self._display.note("the last message has no answer yet", dim=True)
            self._interruptible(lambda: self._follow(run_id, 0))
        return True

    def fork(self, new_id: str) -> None:
        """Go on in a copy of the session."""
        assert self.session is not None
        self._remote.post(f"{session_path(self.session)}/fork", {"session_id": new_id})
        self.session = new_id

    def _interruptible(self, work: Callable[[], Ending]) -> Ending:
        self._run_id = None
        try:
            return work()
        except KeyboardInterrupt:
            self._display.note("stopping …", fg="yellow")
            if self._run_id is None:
                self._display.note("stopped before there was an answer", fg="yellow")
                return Ending.STOPPED
            # Hanging up has cancelled it as well; the answer tells when the session is free again.
            with suppress(TenutoError):
                self._remote.post(f"/v1/runs/{self._run_id}/cancel")
            self._display.note("stopped; what was said is kept", fg="yellow")
            return Ending.STOPPED

    def _send(self, content: Content) -> Ending:
        try:
            return self._begin(content)
        except Refused as exc:
            if exc.kind != "session_paused":
                raise
            self._display.note("an earlier tool call needs an answer first", fg="yellow")
            self._follow(str(exc.data["run_id"]), 0)
            return self._begin(content)

    def _begin(self, content: Content) -> Ending:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "stream": True,
        }
        if self._remote.is_local:
            body["roots"] = [str(Path.cwd())]
        if self.session is None:
            body["match"] = "off"
        else:
            body |= {"session_id": self.session, "session_mode": "append"}
        with self._remote.stream("POST", "/v1/chat/completions", body) as response:
            self._run_id = response.headers.get("x-tenuto-run-id")
            for seen in of_chunks(events_in(response)):
                if isinstance(seen, OfRun):
                    self._run_id = seen.run_id
                else:
                    self._display.show(seen)
        return Ending.FAILED if self._run_id is None else self._rest(self._run_id)

    def _follow(self, run_id: str, after: int) -> Ending:
        """Show a run's events from a number on."""
        self._run_id = run_id
        with self._remote.stream("GET", f"/v1/runs/{run_id}/events", after=after) as response:
            for seen in of_events(events_in(response)):
                self._display.show(seen)
        return self._rest(run_id)

    def _rest(self, run_id: str) -> Ending:
        """A run's stream has come to its end: say how the run stands, and ask what it waits for."""
        run = self._remote.get(f"/v1/runs/{run_id}")
        self._display.end_line()
        if run["status"] == "paused" and run["reason"] in ("approval", "input"):
            return self._ask(run)
        self._display.usage(run)
        if run["status"] == "paused":
            names = ", ".join(call["name"] for call in run["pause"]["calls"])
            self._display.note(f"waiting for another client to call {names}", fg="yellow")
            return Ending.FAILED
        if run["status"] == "completed":
            return Ending.ANSWERED
        if run["status"] == "cancelled":
            self._display.note("the answer was cancelled", fg="yellow")
        elif run["status"] != "failed":
            self._display.problem(f"the answer ended as {run['status']}: {run['error'] or run['stop_reason']}")
        elif run["error"]:
            self._display.problem(run["error"])
        return Ending.FAILED

    def _ask(self, run: dict[str, Any]) -> Ending:
        call = run["pause"]["calls"][0]
        words = f"{call['name']}({shortened(arguments_of(call['arguments']), ARGUMENTS * 4)})"
        # Where its events stand now, so that only what comes after the decision is shown.
        with self._remote.stream("GET", f"/v1/runs/{run['id']}/events", after=0) as response:
            number = last_number(events_in(response))
        if (question := run["pause"].get("question")) is not None:
            self._remote.post(f"/v1/agent/inputs/{run['pause']['id']}", self._answer(question))
            return self._follow(run["id"], number)
        decision = self._decide(words)
        body: dict[str, Any] = {"decision": "approve" if decision.approve else "deny"}
        if decision.message is not None:
            body["message"] = decision.message
        if decision.always:
            body["remember_for_session"] = True
        self._remote.post(f"/v1/agent/approvals/{run['pause']['id']}", body)
        return self._follow(run["id"], number)
