"""Calls of runs, each in a task of its own: one that asks a person waits there while its run is paused.

A call ends with its run, whatever becomes of the legs between. What it is asked for is bounded: questions of one call,
of one server at a time, and of one principal's share of all that wait.
"""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import Overloaded
from tenuto.sessions.questions import Question
from tenuto.sessions.shares import Shares
from tenuto.tools.asking import CANCELLED, Ask, CannotAsk, Reply
from tenuto.tools.spec import ToolResult

MOST_ASKED = 20
"""Questions of one call."""
MOST_OF_SERVER = 32
"""Questions of one server that wait at a time."""
MOST_QUESTIONS = 256
"""Questions of all that wait, shared by principals."""
PAUSE = "inpt_"
"""What the ids of questions begin with."""
CANCEL_S = 30.0
"""How long a call may take to hear that it is cancelled."""

Make = Callable[[Ask], Awaitable[ToolResult]]
"""Makes a call. Never raises but for its cancellation."""


class HeldCall:
    """One call of a run. It has a result, a question, or neither yet."""

    def __init__(self, table: "HeldCalls", run_id: str, call_id: str, principal: str) -> None:
        self.run_id, self.call_id, self.principal = run_id, call_id, principal
        self.pause_id = ""
        """Names the question."""
        self.question: Question | None = None
        self.result: ToolResult | None = None
        self._table = table
        self._scope = anyio.CancelScope()
        self._is_over = False
        self._asked = 0
        self._reply: Reply | None = None
        self._moved = anyio.Event()

    @property
    def asks(self) -> bool:
        """Whether it has a question that waits for its reply."""
        return self.question is not None and self._reply is None

    async def settled(self) -> None:
        """Wait until it has a result, or a question that has no reply yet."""
        while not self._is_over and not self.asks:
            await self._moved.wait()

    def reply(self, reply: Reply) -> None:
        """Answer its question."""
        self._reply = reply
        self._tell()

    async def cancel(self) -> None:
        """Cancel it; returns when its server has been told, or after a while."""
        self.end()
        with anyio.move_on_after(CANCEL_S):
            while not self._is_over:
                await self._moved.wait()

    def end(self) -> None:
        """Nobody waits for it any more: who asks hears of a cancel, and the call is cancelled."""
        if self.asks:
            self._reply = CANCELLED
        self._scope.cancel()
        self._tell()

    async def run(self, make: Make) -> None:
        """Make it."""
        try:
            with self._scope:
                self.result = await make(self._ask)
        finally:
            self._is_over = True
            self.end()  # nobody needs the answer to what it may have asked any more

    async def _ask(self, question: Question) -> Reply:
        self._asked += 1
        if self._asked > MOST_ASKED:
            raise CannotAsk(f"this call has asked {MOST_ASKED} times, and is not asked for more")
        self._table.admit(self, question)
        self.pause_id, self.question, self._reply = f"{PAUSE}{uuid4().hex[:24]}", question, None
        self._tell()
        try:
            while self._reply is None:
                await self._moved.wait()
            return self._reply
        finally:
            self.question = self._reply = None
            self._table.answered(self)
            self._tell()

    def _tell(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
        self._table.moved(self)


class HeldCalls:
    """All of them, and the questions that wait. Event-loop thread only.

    `open` says where they run, and who is told of each that has a result, asks, or asks no more.
    """

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, HeldCall]] = {}
        self._questions: Shares[HeldCall] = Shares("the table of questions", MOST_QUESTIONS, lambda _: False)
        self._group: TaskGroup | None = None
        self._on_move: Callable[[str], None] = lambda _: None

    def open(self, group: TaskGroup, on_move: Callable[[str], None]) -> None:
        """Run calls in this group from now on; `on_move` is given the ids of their runs."""
        self._group, self._on_move = group, on_move

    def begin(self, run_id: str, call_id: str, principal: str, make: Make) -> HeldCall:
        """Make a call."""
        assert self._group is not None
        call = HeldCall(self, run_id, call_id, principal)
        self._calls.setdefault(run_id, {})[call_id] = call
        self._group.start_soon(call.run, make)
        return call

    def of(self, run_id: str, call_id: str) -> HeldCall | None:
        """A call of a run, until it is forgotten."""
        return self._calls.get(run_id, {}).get(call_id)

    def of_run(self, run_id: str) -> bool:
        """Whether a run has calls under way."""
        return run_id in self._calls

    def forget(self, call: HeldCall) -> None:
        """Its result has been taken, or it was cancelled."""
        calls = self._calls.get(call.run_id, {})
        calls.pop(call.call_id, None)
        if not calls:
            self._calls.pop(call.run_id, None)

    def drop(self, run_id: str) -> None:
        """A run has ended: so do its calls."""
        for call in self._calls.pop(run_id, {}).values():
            call.end()

    # For the calls.

    def admit(self, call: HeldCall, question: Question) -> None:
        """Let a question wait. Raises CannotAsk where there are too many."""
        same = sum(other.question is not None and other.question.server == question.server for other in self._questions)
        if same >= MOST_OF_SERVER:
            raise CannotAsk(f"{same} questions of this server wait for answers already")
        try:
            self._questions.admit(call, call.principal, anyio.current_time(), 1.0)
        except Overloaded as exc:
            raise CannotAsk("too many questions wait for answers already") from exc

    def answered(self, call: HeldCall) -> None:
        """A question waits no more."""
        self._questions.remove(call)

    def moved(self, call: HeldCall) -> None:
        """A call has come further."""
        self._on_move(call.run_id)
