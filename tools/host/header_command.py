"""Headers that a program of the operator prints, as a token that lives for minutes: anew where the old are refused."""

import json
from collections.abc import AsyncGenerator, Callable

import anyio
import httpx2

from tenuto.tools.host.command_output import CommandFailed, is_token, output_of
from tenuto.tools.mcp_credentials import HeaderCommand


class CommandAuth(httpx2.Auth):
    """For one connection. Event-loop thread only. `learn` is told of what is sent before it is."""

    def __init__(self, command: HeaderCommand, learn: Callable[[str], None]) -> None:
        self._command, self._learn = command, learn
        self._headers: dict[str, str] | None = None
        self._lock = anyio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send it with the headers there are; once more with others, where those are refused. Raises CommandFailed."""
        used = await self._after(None)
        request.headers.update(used)
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            request.headers.update(await self._after(used))
            yield request

    async def _after(self, used: dict[str, str] | None) -> dict[str, str]:
        async with self._lock:
            if self._headers is None or self._headers is used:
                self._headers = await self._run()
                for value in self._headers.values():
                    self._learn(value)
            return self._headers

    async def _run(self) -> dict[str, str]:
        purpose = "its headers"
        headers = self._read(await output_of(self._command.words, purpose))
        if headers is None:
            what = "a token" if self._command.is_bearer else "a JSON object of texts"
            raise CommandFailed(f"the command {self._command.words[0]} for {purpose} did not print {what}")
        return headers

    def _read(self, text: str) -> dict[str, str] | None:
        if self._command.is_bearer:
            return {"Authorization": f"Bearer {text}"} if is_token(text) else None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        fit = all(
            isinstance(one, str) and one.isprintable() and one.isascii() for pair in found.items() for one in pair
        )
        return found if fit else None
