"""A program that stands for one that is forked: `python -S -E through.py SOCKET ARGUMENTS...`.

The other gets its files, environment and folder, is sent the signals that it is sent, and has its exit code.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path


def order(address: str, arguments: Sequence[str], environment: dict[str, str], folder: str, files: list[int]) -> int:
    """Give an order; a socket from which its id and its exit code are read."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        socket.send_fds(client, [b"f"], files)
        told = {"arguments": list(arguments), "environment": environment, "folder": folder}
        client.sendall(json.dumps(told).encode())
        client.shutdown(socket.SHUT_WR)
        return client.detach()


def main() -> int:
    """Returns the exit code of the other."""
    told = order(sys.argv[1], sys.argv[2:], dict(os.environ), str(Path.cwd()), [0, 1, 2])
    with os.fdopen(told, encoding="ascii") as report:
        pid = int(report.readline())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(report.readline())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
