"""The process of an engine that goes wrong: as WRONG_ENGINE says, `HOW TIMES FILE`, so many times in all processes."""

import os
import socket
import struct
import sys
from pathlib import Path

from tenuto.pipelines.backend import Snapshot
from tenuto.pipelines.scripted.backend import ScriptedBackend
from tenuto.runtime.engine.messages import EngineStatus, Report, RoundUsage, StopCause, Stopped, TokensSampled, Unknown
from tenuto.runtime.engine.own_process import child, reports
from tenuto.runtime.engine.own_process.frames import Kind, frame

HOW, TIMES, FILE = os.environ.get("WRONG_ENGINE", "not 0 none").rsplit(" ", 2)
TOLD = Report([Stopped("s", StopCause.END, RoundUsage(prompt=3), "x")], EngineStatus())
STRANGERS = Report([TokensSampled("nobody", (1,)), Unknown("nobody"), *TOLD.events[:0]], EngineStatus())
FLOOD = Report([TokensSampled("s", tuple(range(97, 123)) * 100)], EngineStatus())
UNKNOWN = Report([Unknown("s")] * 100, EngineStatus())

INSTEAD = {
    "garbage": os.urandom(8) * 1000,
    "a huge frame": struct.pack("<I", 1 << 31) + bytes(1 << 20),
    "a report that is cut": frame(Kind.REPORT, reports.encoded(TOLD)[5:-3]),
    "strangers": reports.encoded(STRANGERS) * 1000,
    "a token that there is not": reports.encoded(Report([TokensSampled("s", (4_000_000_000,))], EngineStatus())),
    "a flood": reports.encoded(FLOOD) * 20,
    "it knows nothing": reports.encoded(UNKNOWN),
}
"""What it says once it has told some tokens."""
AT_FIRST = {
    "words that are none": frame(Kind.REFUSED, b"\xff\xfe"),
    "no facts": frame(Kind.OPENED, b"{"),
    "a report at first": frame(Kind.REPORT, b""),
}
"""What it says in place of what it has loaded."""


restore = ScriptedBackend.restore


def is_wrong() -> bool:
    """Whether it is its turn to go wrong."""
    with Path(FILE).open("a+") as file:
        file.seek(0)
        is_turn = len(file.read()) < int(TIMES)
        if is_turn:
            file.write("x")
    return is_turn


def abort_in_a_restore(backend: ScriptedBackend, slot: int, snapshot: Snapshot) -> None:
    """As a native library does that finds something wrong."""
    if is_wrong():
        os.abort()
    restore(backend, slot, snapshot)


def main() -> None:
    """Be an engine that goes wrong."""
    right, told = child._send, 0
    if HOW == "it aborts in a restore":
        setattr(ScriptedBackend, "restore", abort_in_a_restore)  # noqa: B010  (no subclass of it is loaded by a script)

    def send(line: socket.socket, data: bytes) -> None:
        nonlocal told
        told += 1
        if told == 1 and HOW in AT_FIRST and Path(FILE).exists():
            right(line, AT_FIRST[HOW] if is_wrong() else data)
        elif told == 12 and HOW in INSTEAD and is_wrong():
            right(line, INSTEAD[HOW])
            right(line, data)
        elif told == 12 and HOW == "it closes its end" and is_wrong():
            line.shutdown(socket.SHUT_RDWR)
        else:
            right(line, data)

    child._send = send
    child.main(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
