"""A body while it arrives: how large, how slow, and how much of the memory for bodies it may take. Pure ASGI."""

from typing import Any

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.errors import BodyTooLarge, InvalidRequest, TenutoError
from tenuto.runtime.http.refusal import refuse
from tenuto.sessions.shares import Shares

LARGEST_AT_ONCE = 16
"""So many bodies of the largest size may be in memory together, and any number of smaller ones that take no more."""
_SMALL_BYTES = 64 << 10
"""What each request may bring without a look at the others: connections are few enough for that."""
_RETRY_AFTER_S = 1.0


class Bodies:
    """The memory for bodies, which principals share. Event-loop thread only."""

    def __init__(self, max_body_bytes: int, arrival_s: float) -> None:
        self.max_body_bytes, self.arrival_s = max_body_bytes, arrival_s
        self._shares: Shares[object] = Shares("the memory for requests", LARGEST_AT_ONCE * max_body_bytes, _never)

    @property
    def nbytes(self) -> int:
        """What large bodies take now."""
        return self._shares.used

    def grow(self, body: object, principal: str, more: int, total: int) -> None:
        """A principal's body has become so much larger. Raises Overloaded where there is no room for that."""
        if total > _SMALL_BYTES:
            more = more if body in self._shares else total
            self._shares.expect_room(principal, anyio.current_time(), _RETRY_AFTER_S, more)
            self._shares.settle(body, principal, total)

    def free(self, body: object) -> None:
        """A body has been made into something else, or is given up."""
        self._shares.remove(body)


class Arrival:
    """One request whose body is counted and timed while it is read; what is wrong with it is the answer, whatever
    the app does."""

    def __init__(self, bodies: Bodies, scope: Scope, receive: Receive, send: Send) -> None:
        self._bodies = bodies
        self._scope, self._receive, self._send = scope, receive, send
        self._deadline = anyio.current_time() + bodies.arrival_s
        self._read = 0
        self._whole = self._started = False
        self._wrong: TenutoError | None = None

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
        if self._whole:
            return await self._receive()
        with anyio.CancelScope(deadline=self._deadline) as limit:
            message = await self._receive()
        if limit.cancelled_caught:
            raise self._refused(InvalidRequest(f"the body did not arrive within {self._bodies.arrival_s:g} s"))
        self._whole = not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    def _count(self, more: int) -> None:
        self._read += more
        if self._read > self._bodies.max_body_bytes:
            raise self._refused(BodyTooLarge(self._bodies.max_body_bytes))
        try:
            self._bodies.grow(self, _principal(self._scope), more, self._read)
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


def _never(_: object) -> bool:
    return False
