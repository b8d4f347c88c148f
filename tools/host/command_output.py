"""A program of the operator, run for what it prints: a token, or headers."""

from subprocess import DEVNULL, PIPE

import anyio
import httpx2
from mcp.client.stdio import get_default_environment

_RUN_S = 20.0
_MOST_BYTES = 64 << 10


class CommandFailed(httpx2.ConnectError):
    """The program did not give what it is for. What it wrote is not told: it may be a secret."""


async def output_of(words: tuple[str, ...], purpose: str) -> str:
    """What it prints, without the blanks around it. Errors name the program and its purpose. Raises CommandFailed."""
    told = f"the command {words[0]} for {purpose}"
    try:
        with anyio.fail_after(_RUN_S):
            async with await anyio.open_process(
                words, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=get_default_environment()
            ) as process:
                assert process.stdout is not None
                output = bytearray()
                async for piece in process.stdout:
                    output += piece
                    if len(output) > _MOST_BYTES:
                        process.kill()
                        raise CommandFailed(f"{told} writes too much")
                code = await process.wait()
    except TimeoutError:
        raise CommandFailed(f"{told} took more than {_RUN_S:g} s") from None
    except OSError as exc:
        raise CommandFailed(f"{told} cannot be run: {exc.strerror}") from None
    if code:
        raise CommandFailed(f"{told} ended with exit code {code}")
    return output.decode("utf-8", "replace").strip()


def is_token(text: str) -> bool:
    """Whether it can be one: a word without blanks."""
    return bool(text) and text.isprintable() and text.isascii() and " " not in text
