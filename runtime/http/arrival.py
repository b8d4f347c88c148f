"""A body while it arrives: how large, inflated, how slow, and how much of the memory for bodies it takes. Pure ASGI."""

from typing import Any

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.errors import BodyTooLarge, InvalidRequest, Overloaded, TenutoError
from tenuto.runtime.http.inflating import Inflater
from tenuto.runtime.http.refusal import refuse
from tenuto.sessions.shares import Shares

LARGEST_AT_ONCE = 16
"""So many bodies of the largest size may be in memory together, and any number of smaller ones that take no more."""
_SMALL_BYTES = 64 << 10
"""What each request may bring without a look at the others: connections are few enough for that."""
_AT_ONCE = 4
"""So many pieces of a compressed body are inflated on the event loop in a row: a millisecond."""
RETRY_AFTER_S = 1.0
WHAT = "the memory for requests"


class Bodies:
    """The memory for bodies, which principals share. Event-loop thread only.

    A body that is still arriving gives way to another principal's, where its own has more than an equal share.
    """

    def __init__(self, max_body_bytes: int, arrival_s: float) -> None:
        self.max_body_bytes, self.arrival_s = max_body_bytes, arrival_s
        self._claimant = ""
        self._shares: Shares[Arrival] = Shares(WHAT, LARGEST_AT_ONCE * max_body_bytes, self._may_give_way)

    @property
    def nbytes(self) -> int:
        """What large bodies take now."""
        return self._shares.used

    def grow(self, body: "Arrival", principal: str, total: int) -> None:
        """A principal's body is so large now. Raises Overloaded where there is no room for that."""
        if total <= _SMALL_BYTES:
            return
        self._shares.remove(body)
        self._claimant = principal
        for other in self._shares.admit(body, principal, anyio.current_time(), RETRY_AFTER_S, total):
            other.give_way()

    def free(self, body: "Arrival") -> None:
        """A body has been made into something else, or is given up."""
        self._shares.remove(body)

    def _may_give_way(self, body: "Arrival") -> bool:
        # Among a principal's own the first stay: else each new one would end one that has come further.
        return body.is_arriving and self._shares.principal_of(body) != self._claimant


class Arrival:
    """One request whose body is counted and timed while it is read; what is wrong with it is the answer, whatever
    the app does. Of a compressed body, what comes out is counted, and the app reads that."""

    def __init__(
        self, bodies: Bodies, scope: Scope, receive: Receive, send: Send, inflater: Inflater | None = None
    ) -> None:
        self._bodies, self._inflater = bodies, inflater
        self._scope, self._receive, self._send = scope, receive, send
        self._deadline = anyio.current_time() + bodies.arrival_s
        self._read = 0
        self._whole = self._started = False
        self._wrong: TenutoError | None = None
        self._wait: anyio.CancelScope | None = None
        """Set while the next piece is waited for."""

    @property
    def is_arriving(self) -> bool:
        """Whether more of it is to come."""
        return not self._whole

    def give_way(self) -> None:
        """Give the body up: another needs its room."""
        self._refused(Overloaded(WHAT, RETRY_AFTER_S))
        if self._wait is not None:
            self._wait.cancel()

    async def run(self, app: ASGIApp) -> None:
        """Let the app answer the request."""
        try:
            await app(self._scope, self._next, self._pass)
        except Exception:
            if self._wrong is None or self._started:
                raise
        finally:
            self._bodies.free(self)
        if self._wrong is not None and not self._started:
            await refuse(self._wrong, self._scope, self._receive, self._send, close=True)

    async def _next(self) -> Message:
        message = None if self._whole or self._started else await self._in_time()
        if message is None:  # nobody reads what comes after the body, or of the body after the answer has begun
            return await self._receive()
        if self._started or message["type"] == "http.disconnect":
            return message
        is_last = not message.get("more_body", False)
        if self._inflater is None:
            self._count(len(message.get("body", b"")))
        else:
            message = {**message, "body": await self._inflated(self._inflater, message.get("body", b""), is_last)}
        self._whole = is_last
        return message

    async def _in_time(self) -> Message | None:
        """The next message; None where the answer has begun instead. Raises what is wrong with the body."""
        if self._wrong is not None:
            raise self._wrong
        with anyio.CancelScope(deadline=self._deadline) as self._wait:
            message = await self._receive()
        late, self._wait = self._wait.cancelled_caught, None
        if self._wrong is not None:
            raise self._wrong
        if late and self._started:
            return None
        if late:
            raise self._refused(InvalidRequest(f"the body did not arrive within {self._bodies.arrival_s:g} s"))
        return message

    async def _inflated(self, inflater: Inflater, data: bytes, is_last: bool) -> bytes:
        """What a piece of a body becomes: each bit of that is counted before the next is made."""
        found: list[bytes] = []
        try:
            inflater.push(data)
            while inflater.has_more:
                if self._wrong is not None:  # it has given way meanwhile
                    raise self._wrong
                at_once = len(found) < _AT_ONCE
                found.append(inflater.read() if at_once else await anyio.to_thread.run_sync(inflater.read))
                self._count(len(found[-1]))
            if is_last:
                inflater.finish()
        except InvalidRequest as wrong:
            raise self._refused(wrong) from None
        return b"".join(found)

    def _count(self, more: int) -> None:
        self._read += more
        if self._read > self._bodies.max_body_bytes:
            raise self._refused(BodyTooLarge(self._bodies.max_body_bytes))
        try:
            self._bodies.grow(self, _principal(self._scope), self._read)
        except TenutoError as full:
            raise self._refused(full) from None

    def _refused(self, wrong: TenutoError) -> TenutoError:
        self._wrong = wrong
        return wrong

    async def _pass(self, message: Message) -> None:
        if self._wrong is not None and not self._started:
            return
        if not self._started:
            self._started = True
            self._bodies.free(self)  # a stream may go on for long after its request has been understood
        await self._send(message)


def _principal(scope: Scope) -> str:
    """Whose body it is: known to `Authentication`, which has been passed when the body is read."""
    state: dict[str, Any] = scope.get("state", {})
    return state["principal"].id if "principal" in state else ""
