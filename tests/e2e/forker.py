"""The process that programs are forked from: it has imported the runtime, has one thread, and has read nothing.

`python -P forker.py SOCKET`; it ends with its stdin. Whoever connects to SOCKET sends three files, which become stdin,
stdout and stderr, then an order as JSON and the end of what it sends; it is sent a line with the process's id, and one
with its exit code. What is forked becomes `python -m tenuto ...`, or `python FILE.py ...`.
"""

import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "tenuto.runtime.serve",
    "tenuto.runtime.cli",
    "tenuto.runtime.terminal.doctor",
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "encodings.idna",
    "uvicorn.lifespan.off",
    "uvloop",
)
"""No fork has to import these. OpenMP reads its settings as it is loaded, so llama.cpp is not among them."""


def await_order(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each order: the fork returns it. Once nobody is left to give one: None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in selector.select()):
            client, _ = listener.accept()
            _, files, _, _ = socket.recv_fds(client, 1, 3)
            with client.makefile("rb") as said:
                order: dict[str, Any] = json.loads(said.read())
            if any(argument.endswith(":mlx") for argument in order["arguments"]):
                with suppress(ImportError):
                    importlib.import_module("tenuto.pipelines.mlx.backend")
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(files, client)
                return order
            client.close()
            for file in files:
                os.close(file)
    return None


def become(files: list[int], client: socket.socket) -> None:
    """Fork once more: the new process goes on with these files, and this one stays to report its id and its end."""
    pid = os.fork()
    if pid == 0:
        client.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        # Those of this process know of other files whether they can be sought, or are terminals.
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        # Without a buffer, in which a full disk would leave what it does not take.
        raw = os.fdopen(2, "wb", 0, closefd=False)
        sys.stderr = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
        return
    report(pid, client)


def report(pid: int, client: socket.socket) -> NoReturn:
    """Tell of the other process, and end with it. Nothing else is held open meanwhile."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, client.fileno())
    os.closerange(client.fileno() + 1, client.fileno() + 64)
    try:
        client.sendall(f"{pid}\n".encode())
        client.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    finally:  # also when nobody waits for the report any more
        os._exit(0)


if __name__ == "__main__":
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{sys.argv[1]}.new")
        listener.listen(64)
        Path(f"{sys.argv[1]}.new").rename(sys.argv[1])  # whoever finds it can connect
        given = await_order(listener)
    if given is None:
        os._exit(0)  # to take down all that was imported takes seconds
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    if given["arguments"] and given["arguments"][0].endswith(".py"):
        sys.argv[:] = given["arguments"]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv[1:] = given["arguments"]
        runpy.run_module("tenuto", run_name="__main__", alter_sys=True)
