"""The end that comes in any case: a process of its own that ends a server which does not stop after a signal.

A main thread that is stuck runs no signal handler, and one that is stuck in C code with the interpreter's lock lets no
other thread run either. What happens even then is what the interpreter's C handler does: it writes the signal's number
to the wakeup descriptor. So that descriptor leads to a process which does nothing else than wait, and which ends with
the server, however the server ends.

The file is also that process's program, which imports nothing of ours.
"""

import os
import select
import signal
import subprocess
import sys
import time

MARGIN_S = 5.0
"""What a server may take to stop, beyond the time that it gives to open requests."""
_DUMP_S = 2.0
_ENDED_BY = "SIGALRM"
"""Ends a process by default, and nobody else sends it: so the exit status, 142 in a shell, says what has happened."""


class Watchdog:
    """Waits for SIGINT and SIGTERM, and ends this process `drain_s` and a margin later if it is still there.

    A second signal leaves it no more than the margin. Main thread only.
    """

    def __init__(self, drain_s: float) -> None:
        import faulthandler

        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # The main thread's last words: where each thread was. It is chained, so the signal then does what it does.
        faulthandler.register(getattr(signal, _ENDED_BY), file=sys.stderr, all_threads=True, chain=True)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(drain_s)],
            stdin=read,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server
        )
        os.close(read)

    def watch(self) -> None:
        """From now on signals are seen. The event loop runs: it had the descriptor for itself, and needs it no more
        than ten times a second, when it comes round to run the handlers."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)


def _guard(pid: int, drain_s: float) -> None:
    """Wait for the end of a process, or else be it."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # whoever stops a whole group of processes counts on this one to stay
    deadline: float | None = None
    first = ""
    while _readable(deadline):
        if not (numbers := os.read(0, 256)):
            return
        for number in numbers:
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            latest = time.monotonic() + MARGIN_S + (drain_s if deadline is None else 0)
            deadline, first = min(deadline or latest, latest), first or signal.Signals(number).name
    seconds = f"{drain_s + MARGIN_S:g} s"
    text = f"tenuto: it did not stop within {seconds} of {first}, so it is ended by {_ENDED_BY}; where it was:"
    os.write(2, f"{text}\n\n".encode())
    os.kill(pid, getattr(signal, _ENDED_BY))
    if not _readable(time.monotonic() + _DUMP_S):
        os.kill(pid, signal.SIGKILL)


def _readable(deadline: float | None) -> bool:
    """Whether there is something to read from the server, or its end, before the deadline."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return bool(select.select([0], [], [], left)[0])


if __name__ == "__main__":
    _guard(int(sys.argv[1]), float(sys.argv[2]))
