"""Headers that a program of the operator prints, as a token that lives for minutes: anew where the old are refused."""

import json
from collections.abc import AsyncGenerator, Callable
from subprocess import DEVNULL, PIPE

import anyio
import httpx2
from mcp.client.stdio import get_default_environment

from tenuto.tools.mcp_credentials import HeaderCommand

_RUN_S = 20.0
_MOST_BYTES = 64 << 10


class CommandFailed(httpx2.ConnectError):
    """The program gave no headers. What it wrote is not told: it may be a secret."""


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
        name = self._command.words[0]
        try:
            with anyio.fail_after(_RUN_S):
                async with await anyio.open_process(
                    self._command.words, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=get_default_environment()
                ) as process:
                    assert process.stdout is not None
                    output = bytearray()
                    async for piece in process.stdout:
                        output += piece
                        if len(output) > _MOST_BYTES:
                            process.kill()
                            raise CommandFailed(f"the command {name} for its headers writes too much")
                    code = await process.wait()
        except TimeoutError:
            raise CommandFailed(f"the command {name} for its headers took more than {_RUN_S:g} s") from None
        except OSError as exc:
            raise CommandFailed(f"the command {name} for its headers cannot be run: {exc.strerror}") from None
        if code:
            raise CommandFailed(f"the command {name} for its headers ended with exit code {code}")
        headers = self._read(output.decode("utf-8", "replace").strip())
        if headers is None:
            what = "a token" if self._command.is_bearer else "a JSON object of texts"
            raise CommandFailed(f"the command {name} for its headers did not print {what}")
        return headers

    def _read(self, text: str) -> dict[str, str] | None:
        if self._command.is_bearer:
            return {"Authorization": f"Bearer {text}"} if text and text.isprintable() and " " not in text else None
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
