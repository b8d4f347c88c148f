"""Requests to an MCP server that wants a token: theirs is sent, renewed, and where a person must log in, that is said.

No browser is started here, and nobody is registered: a command does so, with a person before it.
"""

import re
from collections.abc import AsyncGenerator, Callable

import anyio
import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes

from tenuto.tools.host.oauth_fetch import LoginFailed
from tenuto.tools.host.oauth_flow import obtain, renew
from tenuto.tools.host.token_file import Kept, TokenFile
from tenuto.tools.mcp_credentials import OAuthSettings

_WATCH_S = 1.0
_MOST_SCOPE = 4096
"""Characters of all scopes that are asked for at one login. What a server wants above that is not asked for."""
_MOST_TOLD = 300
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""One, as RFC 6749 has it: whatever else a server says would not come through a header or a log as it is."""


class LoginNeeded(Exception):
    """A person must log in at the server; the text says by which command."""


class OAuth(httpx2.Auth):
    """For one server. Event-loop thread only. What is kept may be changed by other processes at any time.

    `learn` is told of each token before it is sent, and `want_login` what `LoginNeeded` says, when it is raised.
    """

    def __init__(
        self,
        url: str,
        settings: OAuthSettings,
        learn: Callable[[str], None] = lambda _: None,
        want_login: Callable[[str], None] = lambda _: None,
    ) -> None:
        assert settings.folder is not None
        self.file = TokenFile(settings.folder, settings.name, url)
        self._settings, self._learn, self._want_login = settings, learn, want_login
        self._kept: Kept | None = None
        self._stamp: tuple[int, int] | None = None
        self._hopeless: tuple[int, int] | None = None
        """The file of which is known that only a person can help."""
        self._refused: str | None = None
        """The token with which a login was needed last."""

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
            kept = await self._renewed(kept, response)
            self._bear(request, kept)
            response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise self._needed("it does not take our token", kept)
        if response.status_code == httpx2.codes.FORBIDDEN and _lacks_scope(response):
            wanted = await self._note(extract_scope_from_www_auth(response), kept)
            raise self._needed(f"it wants more than was granted{wanted}", kept, helps=True)

    async def changed(self) -> None:
        """Wait until somebody has logged in or out since a login was needed, and for all that was wanted."""
        while True:
            kept = await self._current()
            if _token(kept) != self._refused and kept.wanted is None:
                return
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
            stamp, token = self.file.stamp(), _token(kept)
            if token is not None and token != _token(used) and not kept.is_over:
                return kept
            try:
                if stamp is not None and stamp == self._hopeless:
                    raise LoginFailed("it cannot be renewed")
                await self._renew(kept, refusal)
            except LoginFailed as exc:
                if not exc.is_final:
                    raise httpx2.ConnectError(str(exc)) from None
                if self._settings.needs_person:
                    self._hopeless = stamp
                if refusal is None:  # perhaps it is taken yet, and else its refusal tells how to log in
                    return used
                raise self._needed(str(exc), used) from None
            await self.file.write(kept)
        self._stamp, self._kept = self.file.stamp(), kept
        return kept

    async def _renew(self, kept: Kept, refusal: httpx2.Response | None) -> None:
        if self._settings.needs_person:
            await renew(kept, self._settings)
            return
        told = refusal or httpx2.Response(401)
        await obtain(kept, self._settings, httpx2.Response(401, headers=_challenge(told)))

    async def _note(self, scope: str | None, used: Kept) -> str:
        """Ask for this too, at the next login; how it is told."""
        async with self.file.locked():
            kept = await self.file.read()
            if _token(kept) != _token(used):  # somebody has logged in meanwhile
                return ""
            said = union_scopes(union_scopes(kept.tokens.scope if kept.tokens else None, kept.wanted), scope)
            wanted = " ".join(filter(_SCOPE.fullmatch, (said or "").split()))
            if wanted and len(wanted) <= _MOST_SCOPE and wanted != kept.wanted:
                kept.wanted = wanted
                await self.file.write(kept)
        return f": {kept.wanted[:_MOST_TOLD]}" if kept.wanted else ""

    def _bear(self, request: httpx2.Request, kept: Kept) -> None:
        if (token := _token(kept)) is not None:
            self._learn(token)
            request.headers["Authorization"] = f"Bearer {token}"

    def _needed(self, why: str, used: Kept, *, helps: bool = False) -> LoginNeeded:
        """`helps`: whether the command that logs in does so also where no person is needed for it."""
        if helps or self._settings.needs_person:
            told = f"login is required ({why}): run `tenuto mcp login {self._settings.name}`"
        else:
            told = f"a login by its `oauth` settings failed: {why}"
        self._refused = _token(used)
        self._want_login(told)
        return LoginNeeded(told)


def _token(kept: Kept) -> str | None:
    return None if kept.tokens is None else kept.tokens.access_token


def _challenge(response: httpx2.Response) -> dict[str, str]:
    told = response.headers.get("www-authenticate")
    return {} if told is None else {"www-authenticate": told}


def _lacks_scope(response: httpx2.Response) -> bool:
    return extract_field_from_www_auth(response, "error") == "insufficient_scope"
