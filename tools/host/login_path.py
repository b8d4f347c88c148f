"""The PATH that a person's login shell has, which a program that a desktop or a service has started lacks."""

import os
import re
import signal
import subprocess
from contextlib import suppress

import anyio
import anyio.to_thread

_WAIT_S = 5.0
_MARK = "=tenuto=path="
_MOST_BYTES = 64 << 10


async def login_path() -> str | None:
    """Ask the shell that SHELL names; None where it does not say. Takes 5 s at most."""
    shell = anyio.Path(os.environ.get("SHELL", ""))
    if not shell.is_absolute() or not await shell.is_file():
        return None
    return await anyio.to_thread.run_sync(_ask, str(shell))


def _ask(shell: str) -> str | None:
    """Interactive too, as many set PATH for that alone; and in a session of its own, so that it takes no terminal."""
    try:
        process = subprocess.Popen(
            [shell, "-i", "-l", "-c", f'printf "%s%s%s" {_MARK} "$PATH" {_MARK}'],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        told, _ = process.communicate(timeout=_WAIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    found = re.search(f"{_MARK}(.*){_MARK}", told[-_MOST_BYTES:].decode(errors="surrogateescape"), re.DOTALL)
    return found[1] if found and found[1] else None
