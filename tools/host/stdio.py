"""A server as a child process: messages as lines over its stdin and stdout, everything bounded, the whole tree ended.

The SDK has such a transport, too. Ours bounds the length of a message, keeps what is no message for people to read
instead of logging a traceback for each line, knows the exit code, and mends listings.
"""

import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from tenuto.tools.host.confinement import confined, home_in, limit
from tenuto.tools.host.login_path import login_path
from tenuto.tools.host.reading import understood
from tenuto.tools.host.state import Failure
from tenuto.tools.host.stderr_tail import StderrTail
from tenuto.tools.host.transport import MAX_MESSAGE_BYTES, Incoming, Streams, unsent
from tenuto.tools.mcp_config import StdioTarget

_GRACE_S = 2.0
"""For each step of the end: after stdin is closed, and again after SIGTERM."""
_POLL_S = 0.01
_GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class StdioTransport:
    """One child process. What it writes beside messages goes to `tail`."""

    refused = False
    login_needed = ""

    def __init__(self, target: StdioTarget, tail: StderrTail) -> None:
        self.ended = anyio.Event()
        self.ending = "it closed its output"
        self._target, self._tail = target, tail

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        """Start the process; end it with all its descendants when the block is left.

        Raises:
            OSError: it cannot be started; the text names the command.
        """
        process = await _start(self._target)
        to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, to_session)
            tasks.start_soon(self._write, process, from_session, to_session)
            assert process.stderr is not None
            tasks.start_soon(self._tail.follow, process.stderr)
            try:
                yield incoming, outgoing
            finally:
                # Shielded, because a cancelled owner must not leave a process behind; every wait inside is bounded.
                with anyio.CancelScope(shield=True):
                    # From here on nobody takes messages: the reader goes on without delivering, so that a child
                    # that is still writing can come to read the end of its stdin.
                    incoming.close()
                    outgoing.close()
                    await _stop(process)
                _close(process)
                tasks.cancel_scope.cancel()

    async def _read(self, process: Process, to_session: MemoryObjectSendStream[Incoming]) -> None:
        assert process.stdout is not None
        buffer = bytearray()
        async with to_session:
            with suppress(*_GONE):
                while len(buffer) <= MAX_MESSAGE_BYTES:
                    searched = len(buffer)
                    buffer += await process.stdout.receive()
                    cut = buffer.rfind(b"\n", searched)
                    if cut < 0:
                        continue
                    with memoryview(buffer) as view:
                        lines = bytes(view[:cut]).split(b"\n")
                    del buffer[: cut + 1]
                    await self._deliver(lines, to_session)
                self.ending = f"it sent a message over {MAX_MESSAGE_BYTES} bytes"
            if len(buffer) <= MAX_MESSAGE_BYTES and await _exited(process, _GRACE_S):
                self.ending = _exit_text(process.returncode)
            self.ended.set()
        await _drain(process)

    async def _deliver(self, lines: list[bytes], to_session: MemoryObjectSendStream[Incoming]) -> None:
        rubbish = False
        for line in lines:
            if not line.strip():
                continue
            message = await understood(line)
            if message is None:
                rubbish = True
                self._tail.add(line + b"\n")
            else:
                with suppress(anyio.BrokenResourceError):
                    await to_session.send(message)
        if rubbish:
            # A flood of rubbish is slowed down by the full pipe, and the event loop has time for the others.
            await anyio.sleep(_POLL_S)

    async def _write(
        self,
        process: Process,
        from_session: MemoryObjectReceiveStream[SessionMessage],
        to_session: MemoryObjectSendStream[Incoming],
    ) -> None:
        assert process.stdin is not None
        async with from_session:
            with suppress(*_GONE):
                async for message in from_session:
                    if process.returncode is not None and isinstance(message.message, JSONRPCRequest):
                        # It died idle, and a descendant of it holds the pipes open: nobody will read this.
                        self.ending = _exit_text(process.returncode)
                        await to_session.send(SessionMessage(unsent(message.message.id, self.ending, Failure.ENDED)))
                        self.ended.set()
                        continue
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")
                return
        # A child that is dead is the reader's to tell of; one that lives but does not read could answer nothing.
        if not await _exited(process, _GRACE_S):
            self.ending = "it does not read its input"
            self.ended.set()


async def _start(target: StdioTarget) -> Process:
    env = get_default_environment() | dict(target.env)
    if target.cwd is not None and not await anyio.Path(target.cwd).is_dir():
        raise FileNotFoundError(f"its folder {target.cwd!r} does not exist")
    words = [await _found(target, env), *target.args]
    cwd = target.cwd
    if target.sandbox is not None:
        words, cwd = await confined(words[0], target.args, cwd, target.sandbox), None
    try:
        process = await anyio.open_process(words, env=home_in(target.sandbox, env), cwd=cwd, start_new_session=True)
    except OSError as exc:
        raise type(exc)(f"the command {target.command!r} cannot be started: {exc.strerror or exc}") from exc
    limit(process.pid)
    return process


async def _found(target: StdioTarget, env: dict[str, str]) -> str:
    """The command's path; `env` gets the login shell's PATH where only that one leads to it."""
    if os.sep in target.command:
        return target.command  # a path as seen from cwd; only the system's own call knows it
    path = env.get("PATH", os.defpath)
    found = shutil.which(target.command, path=path)
    if found is None and "PATH" not in target.env and (more := await login_path()) is not None:
        path = os.pathsep.join(dict.fromkeys([*path.split(os.pathsep), *more.split(os.pathsep)]))
        found = shutil.which(target.command, path=path)
        env["PATH"] = path
    if found is None:
        raise FileNotFoundError(f"the command {target.command!r} was not found on PATH")
    return found


async def _stop(process: Process) -> None:
    """Close its stdin, then SIGTERM, then SIGKILL, to the whole group: its descendants belong to it."""
    assert process.stdin is not None
    with suppress(*_GONE), anyio.move_on_after(_GRACE_S):
        await process.stdin.aclose()
    if await _exited(process, _GRACE_S):
        await _end_descendants(process)
        return
    # The leader is not reaped yet, so its id is still that of its group.
    _signal_group(process, signal.SIGTERM)
    await _exited(process, _GRACE_S)
    _signal_group(process, signal.SIGKILL)
    await _exited(process, _GRACE_S)


async def _end_descendants(process: Process) -> None:
    """End what a program that has ended by itself left behind."""
    deadline = anyio.current_time() + _GRACE_S
    number = signal.SIGTERM
    while _signal_orphans(process, number):
        number = signal.SIGTERM if anyio.current_time() < deadline else signal.SIGKILL
        if anyio.current_time() > deadline + _GRACE_S:
            return  # they cannot be ended
        await anyio.sleep(_POLL_S)


def _signal_orphans(process: Process, number: signal.Signals) -> bool:
    """Send a signal to a group whose leader is gone; whether there was anybody.

    While a group has members, its id is no new process's. If there is a process of that id, then the group was empty.
    """
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            return True
    return False


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _exited(process: Process, timeout_s: float) -> bool:
    """Wait by polling: the process's own wait also waits for its pipes, which a descendant may hold open."""
    deadline = anyio.current_time() + timeout_s
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL_S)
    return True


async def _drain(process: Process) -> None:
    assert process.stdout is not None
    with suppress(*_GONE):
        while True:
            await process.stdout.receive()


def _close(process: Process) -> None:
    """Close the pipes also where a descendant outside the group holds their other ends.

    Closing anyio's streams closes no pipe, and nothing public reaches the event loop's transport, which does.
    """
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with suppress(PermissionError):  # it may try to kill a process that is another user's by now
            close()


def _exit_text(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-returncode).name}"
    return f"it exited with code {returncode}"
