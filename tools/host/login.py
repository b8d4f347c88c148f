"""A person's login at an MCP server: the address to open, and a listener on this machine for what comes back."""

import html
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from mcp.client.auth.utils import extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import AuthorizationCodeResult

from tenuto.tools.egress import Egress
from tenuto.tools.host.oauth_fetch import LoginFailed
from tenuto.tools.host.oauth_flow import Person, obtain
from tenuto.tools.host.pinned import PinnedTransport
from tenuto.tools.host.token_file import Kept, TokenFile
from tenuto.tools.mcp_credentials import OAuthSettings

WAIT_S = 300.0
_PATH = "/callback"
_MOST_HEAD = 16 << 10
_MOST_FIELDS = 32
_MOST_CONNECTIONS = 32
"""At a time; of more, the oldest that has not sent its request gives way."""
_HEAD_S = 10.0
_CHALLENGE_S = 30.0


class _Browser(Person):
    """Listens on loopback. Only what carries the state that was sent counts; the rest is told so and forgotten."""

    def __init__(self, listener: SocketListener, show: Callable[[str], None], wait_s: float) -> None:
        self._listener, self._show, self._wait_s = listener, show, wait_s
        self.redirect_uri = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}{_PATH}"
        self._state = ""
        self._result: AuthorizationCodeResult | None = None
        self._refused = ""
        self._came = anyio.Event()
        self._heard: deque[anyio.CancelScope] = deque()

    async def ask(self, url: str) -> None:
        """Show where to log in."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._show(url)

    async def answer(self) -> AuthorizationCodeResult:
        """What came back. Raises LoginFailed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listener.serve, self._hear)
            with anyio.move_on_after(self._wait_s):
                await self._came.wait()
            tasks.cancel_scope.cancel()
        if self._result is None:
            raise LoginFailed(self._refused or f"nobody logged in within {self._wait_s:g} s")
        return self._result

    async def _hear(self, stream: SocketStream) -> None:
        """Answer one connection. However that goes, neither the login nor another connection ends by it."""
        is_ours = False
        with self._a_place(), suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with stream:
                head = b""
                while b"\r\n\r\n" not in head and len(head) < _MOST_HEAD:
                    head += await stream.receive()
                told, is_ours = self._understood(head.split(b"\r\n", 1)[0].decode("latin-1"))
                status = "200 OK" if is_ours else "404 Not Found"
                page = f"<!doctype html><title>Tenuto</title><p>{html.escape(told)}</p>".encode()
                start = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                more = f"Content-Length: {len(page)}\r\nConnection: close\r\nReferrer-Policy: no-referrer\r\n\r\n"
                await stream.send((start + more).encode() + page)
        if is_ours:
            self._came.set()

    @contextmanager
    def _a_place(self) -> Iterator[None]:
        """For a while, and until others need it."""
        with anyio.move_on_after(_HEAD_S) as scope:
            self._heard.append(scope)
            if len(self._heard) > _MOST_CONNECTIONS:
                self._heard[0].cancel()
            try:
                yield
            finally:
                self._heard.remove(scope)

    def _understood(self, line: str) -> tuple[str, bool]:
        words = line.split(" ")
        target = words[1] if len(words) == 3 and words[0] == "GET" else ""
        path, _, query = target.partition("?")
        try:
            given = {name: values[0] for name, values in parse_qs(query, max_num_fields=_MOST_FIELDS).items()}
        except ValueError:
            given = {}
        state = given.get("state", "").encode()
        if path != _PATH or not self._state or not secrets.compare_digest(state, self._state.encode()):
            return "This is not the login that was asked for.", False
        if self._result is not None or self._refused:
            return "The answer to this login is there already. You can close this page.", True
        if "code" not in given:
            self._refused = f"the authorization server refused: {given.get('error', 'it gave no code')[:100]}"
            return "The login was refused. You can close this page.", True
        self._result = AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss"))
        return "You are logged in. You can close this page.", True


async def login(url: str, settings: OAuthSettings, show: Callable[[str], None], wait_s: float = WAIT_S) -> None:
    """Have a person log in at the server of a URL, and keep what that gives. `show` shows them where.

    Raises:
        LoginFailed: it did not come to a token.
        OSError: the port to come back to is taken, or the file cannot be written.
    """
    assert settings.folder is not None
    file = TokenFile(settings.folder, settings.name, url)
    kept = await file.read()
    if not settings.needs_person:
        await obtain(kept, settings, await _refusal(kept, settings))
    else:
        multi = await _listener(kept, settings)
        async with multi:
            browser = _Browser(multi, show, wait_s)
            if kept.client is not None and browser.redirect_uri not in map(str, kept.client.redirect_uris or ()):
                kept.client = None  # it was registered with an address that is not ours now
            await obtain(kept, settings, await _refusal(kept, settings), browser)
    kept.wanted = None
    async with file.locked():
        await file.write(kept)


async def _listener(kept: Kept, settings: OAuthSettings) -> SocketListener:
    """Where the client was registered to come back to, if that is free."""
    known = [urlsplit(str(uri)).port or 0 for uri in (kept.client.redirect_uris or () if kept.client else ())]
    for port in dict.fromkeys([settings.callback_port] if settings.callback_port else [*known[:1], 0]):
        try:
            multi = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        except OSError:
            if port and not settings.callback_port:
                continue
            raise
        listener: SocketListener = multi.listeners[0]  # type: ignore[assignment]  # one address, so one socket
        return listener
    raise LoginFailed("no port is free")


async def _refusal(kept: Kept, settings: OAuthSettings) -> httpx2.Response:
    """What the server says to who has no token; and to whom it said that it wants more, that."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        async with httpx2.AsyncClient(transport=PinnedTransport(Egress.ALL), timeout=_CHALLENGE_S) as http:
            request = http.build_request("POST", kept.url, json=ping, headers=headers)
            response = await http.send(request, stream=True)
            await response.aclose()
    except httpx2.HTTPError as exc:
        raise LoginFailed(f"the server cannot be reached: {exc or type(exc).__name__}", is_final=False) from None
    told = response.headers.get("www-authenticate", "") if response.status_code == httpx2.codes.UNAUTHORIZED else ""
    scope = union_scopes(extract_scope_from_www_auth(response) if told else None, kept.wanted) or settings.scope
    refusal = httpx2.Response(401, headers={"www-authenticate": told} if told else {})
    if scope is not None and scope != extract_scope_from_www_auth(refusal):
        place = [part for part in told.removeprefix("Bearer").split(",") if "resource_metadata" in part]
        told = ", ".join([f'Bearer scope="{scope}"', *(part.strip() for part in place)])
        refusal = httpx2.Response(401, headers={"www-authenticate": told})
    return refusal
