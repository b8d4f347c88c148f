"""The HTTP client of connections: every failure becomes an answer to its request, and answers have a largest size.

Without this, one refused TCP connection would end the SDK's whole client and take down every call that is under way.
"""

import json
from http import HTTPStatus
from typing import Any

import httpx2
from mcp_types import METHOD_NOT_FOUND, JSONRPCError

from tenuto.tools.host.event_stream import is_event_stream, with_readable_events
from tenuto.tools.host.oauth import LoginNeeded
from tenuto.tools.host.pinned import PinnedTransport
from tenuto.tools.host.reading import readable, unreadable
from tenuto.tools.host.state import Failure
from tenuto.tools.host.subscriptions import MOST_AT_SERVER
from tenuto.tools.host.transport import MAX_MESSAGE_BYTES, RequestId, lost, refused, unsent
from tenuto.tools.mcp_config import HttpTarget

_CONNECT_TIMEOUT_S = 30.0
_CONNECTIONS = httpx2.Limits(max_connections=100 + MOST_AT_SERVER, max_keepalive_connections=20)
"""To one server: what subscriptions may hold leaves as many to calls as the library's own limit does."""
_MOST_REDIRECTS = 5
"""One after the other. Those that lead to another server are not followed at all: the SDK sees to that."""
_SESSION_HEADER = "mcp-session-id"

_REMEDIES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: ": put a key that it takes into the headers of its entry",
    HTTPStatus.FORBIDDEN: ": the key in the headers of its entry does not allow it",
}

_NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_PING = {"jsonrpc": "2.0", "id": "tenuto-session", "method": "ping"}
_NO_SUCH_SESSION = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
_NOT_THIS_WAY = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


class Wire(httpx2.AsyncClient):
    """Sends messages and watches what becomes of them.

    `read_timeout_s` bounds the server's silence while an answer is awaited. `refused` is true once the server had no
    ear for a handshake here, as one has none that speaks another transport. `login_needed` says why and how a person
    must log in, until the server takes something.
    """

    def __init__(self, target: HttpTarget, read_timeout_s: float, auth: httpx2.Auth | None = None) -> None:
        super().__init__(
            headers={"Accept-Encoding": "identity", **target.headers},
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=read_timeout_s),
            limits=_CONNECTIONS,
            transport=None if target.egress is None else PinnedTransport(target.egress),
            max_redirects=_MOST_REDIRECTS,
            auth=auth,
        )
        self.refused = False
        self.login_needed = ""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send it. Of a message that is posted, what goes wrong is told in the response."""
        if request.method != "POST":
            try:
                response = await self._sent(request, stream=stream, **options)
            except LoginNeeded:
                return httpx2.Response(HTTPStatus.UNAUTHORIZED, request=request)
            return with_readable_events(response, None) if stream and is_event_stream(response) else response
        method, number = _read(request)
        try:
            response = await self._sent(request, stream=True, **options)
        except _NOT_CONNECTED as exc:
            reason = f"the server cannot be reached: {words(exc)}"
            return _answer(request, None if number is None else unsent(number, reason, Failure.UNREACHABLE))
        except LoginNeeded as exc:
            failure = None if number is None else refused(number, str(exc))
            return _answer(request, failure, HTTPStatus.UNAUTHORIZED)
        except httpx2.TransportError as exc:
            return _answer(request, None if number is None else lost(number, f"the connection broke: {words(exc)}"))
        if response.is_redirect:  # the SDK follows it, or says why not
            return response
        if number is not None:
            response = await self._looked_at(request, response, method, number)
        if _is_json(response) and not response.is_stream_consumed:
            return await _with_body(request, response, number)
        if stream and is_event_stream(response):
            return with_readable_events(response, number)
        if not stream:
            await response.aread()
        return response

    async def _sent(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except LoginNeeded as exc:
            self.login_needed = str(exc)
            raise
        if response.is_success:
            self.login_needed = ""
        return response

    async def _looked_at(
        self, request: httpx2.Request, response: httpx2.Response, method: str, number: RequestId
    ) -> httpx2.Response:
        """The response, or what a refusal of the whole message means for the request."""
        status = response.status_code
        if status < HTTPStatus.BAD_REQUEST:
            return response
        if method == "initialize" and status in _NOT_THIS_WAY:
            self.refused = True
        if _is_json(response):
            response = await _with_body(request, response, number)
        error = _error_in(response, number)
        if error is not None and not _is_of_session(error, status):
            return response
        if _SESSION_HEADER in request.headers and await self._has_forgotten(request, status):
            await response.aclose()
            return _answer(request, unsent(number, "the server has forgotten the session"))
        if error is None and status not in _NOT_THIS_WAY:
            # The SDK would not name the status.
            await response.aclose()
            reason = f"the server answered HTTP {_named(status)}{_REMEDIES.get(status, '')}"
            return _answer(request, lost(number, reason, refusal(status)), status)
        return response

    async def _has_forgotten(self, request: httpx2.Request, status: int) -> bool:
        """Whether the session of a refused request is gone. 404 says so; where it is 400, a ping tells."""
        if status != HTTPStatus.BAD_REQUEST:
            return status == HTTPStatus.NOT_FOUND
        headers = [(name, value) for name, value in request.headers.items() if name.lower() != "content-length"]
        ping = self.build_request("POST", request.url, headers=headers, json=_PING)
        try:
            response = await super().send(ping, stream=True)
        except (httpx2.TransportError, LoginNeeded):
            return False
        await response.aclose()
        return response.status_code in _NO_SUCH_SESSION


async def _with_body(request: httpx2.Request, response: httpx2.Response, number: RequestId | None) -> httpx2.Response:
    """The response with its body, which is bounded; what went wrong with that, as the answer to the request."""
    # It was asked for uncompressed, so that its bytes on the wire are what it takes in memory.
    content = bytearray()
    try:
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > MAX_MESSAGE_BYTES:
                why = f"it has more than {MAX_MESSAGE_BYTES} bytes"
                return _answer(request, None if number is None else unreadable(number, why))
    except httpx2.TransportError as exc:
        return _answer(request, None if number is None else lost(number, f"the connection broke: {words(exc)}"))
    finally:
        await response.aclose()
    status, body = response.status_code, bytes(content)
    if number is not None:
        body = await readable(body, number if status < HTTPStatus.BAD_REQUEST else None) or b""
    return httpx2.Response(status, headers=response.headers, content=body, request=request)


def _answer(request: httpx2.Request, error: JSONRPCError | None, status: int = 503) -> httpx2.Response:
    """A response that carries the error; for a message that wants no answer, that it was taken."""
    if error is None:
        return httpx2.Response(202, request=request)
    return httpx2.Response(status, request=request, json=error.model_dump(by_alias=True, exclude_none=True))


def _read(request: httpx2.Request) -> tuple[str, RequestId | None]:
    """The method and the id of what is posted; no id for what wants no answer."""
    try:
        message: Any = json.loads(request.content)
    except ValueError:
        return "", None
    if not isinstance(message, dict) or "method" not in message:
        return "", None
    return message["method"], message.get("id")


def _error_in(response: httpx2.Response, number: RequestId) -> JSONRPCError | None:
    """The error that answers this very request. One without its id is about the whole message, as its status is."""
    if not response.is_stream_consumed:
        return None
    try:
        error = JSONRPCError.model_validate_json(response.content)
    except ValueError:
        return None
    return error if error.id == number else None


def _is_of_session(error: JSONRPCError, status: int) -> bool:
    """Whether an error may be about the session instead of the request: a 404 in a session, of a method that exists."""
    return status == HTTPStatus.NOT_FOUND and error.error.code != METHOD_NOT_FOUND


def refusal(status: int) -> Failure:
    """What it means for a connection that a server answers with an HTTP status."""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Failure.UNAUTHORIZED
    return Failure.NO_ENDPOINT if status in _NOT_THIS_WAY else Failure.OTHER


def _is_json(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


def words(exc: Exception) -> str:
    """What went wrong; some errors have no text."""
    return str(exc) or type(exc).__name__


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
