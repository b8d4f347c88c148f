"""What each MCP client does with a server, in the client's own words; run where the client is installed.

A driver's last argument says where the server is: `{"url": ...}` or `{"command": ..., "args": ..., "env": ...}`, and
the protocol's era. It prints what came of everything as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

WAIT_S = 60
TRIES = 600


class Driven(Protocol):
    """A connected client."""

    async def tools(self) -> list[str]:
        """The names of all tools."""

    async def call(
        self, name: str, arguments: dict[str, Any], see: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """A call's structured result, `{"error": ...}` where it failed; `see` is told each progress."""

    async def cancel(self, running: "asyncio.Task[Any]") -> None:
        """Take back a call that runs."""

    async def resources(self) -> list[str]:
        """The URIs of all resources."""

    async def read(self, uri: str) -> str:
        """A resource's text."""

    async def prompts(self) -> list[str]:
        """The names of all prompts."""

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[str]:
        """The texts of a prompt's messages."""


def target() -> dict[str, Any]:
    """Where the server is."""
    found: dict[str, Any] = json.loads(sys.argv[-1])
    return found


async def drive(client: Driven) -> None:
    """Do everything and print what came of it."""
    session = target()["session"]
    seen: list[str] = []
    said = await client.call("chat", {"message": "hello", "session_id": session})
    told = await client.call("chat", {"message": "slowly", "session_id": f"{session}-slowly"}, seen.append)
    approved = await client.call("chat", {"message": "echo", "session_id": f"{session}-echo"})
    made = {
        "tools": await client.tools(),
        "said": said,
        "told": told["text"],
        "seen": seen,
        "approved": approved,
        "after_cancel": await cancelled(client, f"{session}-cancelled"),
        "resources": await client.resources(),
        "transcript": await client.read(f"session://{session}"),
        "prompts": await client.prompts(),
        "prompt": await client.prompt("review", {"language": "rust", "style": "Be kind."}),
    }
    print(json.dumps(made))


async def cancelled(client: Driven, session: str) -> str:
    """Take back a call that would take minutes: what the session says once it is free again."""
    begun = asyncio.Event()
    running = asyncio.create_task(
        client.call("chat", {"message": "at length", "session_id": session}, lambda _: begun.set())
    )
    await asyncio.wait_for(begun.wait(), WAIT_S)
    await client.cancel(running)
    for _ in range(TRIES):
        answer = await client.call("chat", {"message": "next", "session_id": session})
        if "error" not in answer:
            return str(answer["text"])
        await asyncio.sleep(0.05)
    return str(answer)


async def stopped(running: "asyncio.Task[Any]") -> None:
    """Stop waiting for a call."""
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a driver to its end."""

    async def bounded() -> None:
        await asyncio.wait_for(main(), 4 * WAIT_S)

    asyncio.run(bounded())
