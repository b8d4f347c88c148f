"""Requests to an MCP server that wants a token: theirs is sent, renewed, and where a person must log in, that is said.

No browser is started here, and nobody is registered: a command does so, with a person before it.
"""

from collections.abc import AsyncGenerator, Callable

import anyio
import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes

from tenuto.tools.host.oauth_flow import LoginFailed, obtain, renew
from tenuto.tools.host.token_file import Kept, TokenFile
from tenuto.tools.mcp_credentials import OAuthSettings

_WATCH_S = 1.0


class LoginNeeded(Exception):
    """A person must log in at the server; the text says by which command."""


class OAuth(httpx2.Auth):
    """For one server. Event-loop thread only. What is kept may be changed by other processes at any time.

    `learn` is told of each token before it is sent.
    """

    def __init__(self, url: str, settings: OAuthSettings, learn: Callable[[str], None] = lambda _: None) -> None:
        assert settings.folder is not None
        self.file = TokenFile(settings.folder, settings.name, url)
        self._settings, self._learn = settings, learn
        self._kept: Kept | None = None
        self._stamp: tuple[int, int] | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send it with the token there is; once more with another, where that is refused.

        Raises:
            LoginNeeded: nobody is logged in, or not for as much as the server wants.
            httpx2.ConnectError: the authorization server cannot be reached.
        """
        kept = await self._current()
        if kept.tokens is not None and kept.is_over:
            kept = await self._renewed(kept, None)
        self._bear(request, kept)
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._bear(request, await self._renewed(kept, response))
            response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise self._needed("it does not take our token")
        if response.status_code == httpx2.codes.FORBIDDEN and _lacks_scope(response):
            await self._note(extract_scope_from_www_auth(response))
            raise self._needed("it wants more than was granted")

    async def changed(self) -> None:
        """Wait until somebody logs in or out."""
        before = self.file.stamp()
        while self.file.stamp() == before:  # noqa: ASYNC110  (another process writes it)
            await anyio.sleep(_WATCH_S)

    async def _current(self) -> Kept:
        stamp = self.file.stamp()
        if self._kept is None or stamp != self._stamp:
            self._stamp, self._kept = stamp, await self.file.read()
        return self._kept

    async def _renewed(self, used: Kept, refusal: httpx2.Response | None) -> Kept:
        """What has another token than the one that was used: by another process, or by us."""
        async with self.file.locked():
            kept = await self.file.read()
            if _token(kept) is not None and _token(kept) != _token(used) and not kept.is_over:
                return kept
            try:
                await self._renew(kept, refusal)
            except LoginFailed as exc:
                if not exc.is_final:
                    raise httpx2.ConnectError(str(exc)) from None
                if refusal is None:  # perhaps it is taken yet, and else its refusal tells how to log in
                    return used
                raise self._needed(str(exc)) from None
            await self.file.write(kept)
        self._stamp, self._kept = self.file.stamp(), kept
        return kept

    async def _renew(self, kept: Kept, refusal: httpx2.Response | None) -> None:
        if self._settings.grant == "authorization_code":
            await renew(kept, self._settings)
            return
        told = refusal or httpx2.Response(401)
        await obtain(kept, self._settings, httpx2.Response(401, headers=_challenge(told)))

    async def _note(self, scope: str | None) -> None:
        """Ask for this too, at the next login."""
        async with self.file.locked():
            kept = await self.file.read()
            kept.wanted = union_scopes(union_scopes(kept.tokens.scope if kept.tokens else None, kept.wanted), scope)
            await self.file.write(kept)

    def _bear(self, request: httpx2.Request, kept: Kept) -> None:
        if (token := _token(kept)) is not None:
            self._learn(token)
            request.headers["Authorization"] = f"Bearer {token}"

    def _needed(self, why: str) -> LoginNeeded:
        if self._settings.grant == "client_credentials":
            return LoginNeeded(f"a login by its `oauth` settings failed: {why}")
        return LoginNeeded(f"login is required ({why}): run `tenuto mcp login {self._settings.name}`")


def _token(kept: Kept) -> str | None:
    return None if kept.tokens is None else kept.tokens.access_token


def _challenge(response: httpx2.Response) -> dict[str, str]:
    told = response.headers.get("www-authenticate")
    return {} if told is None else {"www-authenticate": told}


def _lacks_scope(response: httpx2.Response) -> bool:
    return extract_field_from_www_auth(response, "error") == "insufficient_scope"
