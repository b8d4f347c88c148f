"""What a worker process runs: jobs from stdin, one at a time, their outcomes to stdout. Ends with its stdin."""

import math
import os
import pickle
import struct
import sys
import time
from typing import BinaryIO

LENGTH = struct.Struct("!Q")
READY = b"+"


def main() -> None:
    """Do jobs until there are no more."""
    memory = int(sys.argv[1])
    # What a job prints must not stand between the outcomes.
    outcomes, jobs = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    _bound_memory(memory)
    _write(outcomes, READY)
    while head := jobs.read(LENGTH.size):
        (length,) = LENGTH.unpack(head)
        _write(outcomes, _outcome(jobs.read(length)))


def _outcome(request: bytes) -> bytes:
    try:
        job, arguments, seconds = pickle.loads(request)
        _bound_time(seconds)
        return pickle.dumps((True, job(*arguments)))
    except Exception as exc:
        try:
            return pickle.dumps((False, exc))
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(exc).__name__}: {exc}")))


def _write(outcomes: BinaryIO, data: bytes) -> None:
    outcomes.write(LENGTH.pack(len(data)) + data)
    outcomes.flush()


def _bound_memory(most: int) -> None:
    """Where the system knows such a bound: what goes beyond it fails, here alone."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time(seconds: float) -> None:
    """The parent ends a job that takes too long. Where the parent has gone, the processor's clock does."""
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds) + 1, hard))


if __name__ == "__main__":
    main()
