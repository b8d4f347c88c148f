"""The process of one engine: loads what it is told to, then takes commands and reports, until its parent goes away.

Its main thread is the engine's. Another reads what the parent sends, and ends the process where the parent is gone.
"""

import faulthandler
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

from tenuto.errors import TenutoError
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.embedding import EmbeddingPipeline
from tenuto.pipelines.loader import found, load_any
from tenuto.pipelines.sizes import size_of
from tenuto.runtime import allocator, log_output
from tenuto.runtime.engine.engine import worker_of
from tenuto.runtime.engine.messages import EngineStatus, Report, Stop
from tenuto.runtime.engine.own_process import commands, reports
from tenuto.runtime.engine.own_process.frames import Frames, Kind, frame
from tenuto.runtime.engine.own_process.order import OPENED, EngineSettings, Opened, Order
from tenuto.runtime.engine.worker import Worker
from tenuto.threads import Next

logger = logging.getLogger(__name__)

_LAST_STEP_S = 5.0
"""For the step that is under way when the parent is gone."""
_READ = 1 << 20

Incoming = Iterator[tuple[Kind, bytes]]


def main(line: socket.socket) -> None:
    """Serve the parent at the other end of a socket."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a terminal tells them to all its processes; the parent says when to end
    faulthandler.enable()
    allocator.keep_little()
    incoming = _incoming(line)
    first = next(incoming, None)
    if first is None:
        return
    order: Order = pickle.loads(first[1])
    log_output.to_stderr(order.log_level)
    logging.getLogger("tenuto.pipelines.opening").setLevel(logging.ERROR)  # the parent's codec has the same to say
    settings: queue.SimpleQueue[EngineSettings] = queue.SimpleQueue()
    worker: Future[Worker] = Future()
    ended = threading.Event()
    threading.Thread(target=_read, args=(incoming, settings, worker, ended), daemon=True).start()
    try:
        stamp = _stamp(order)
        pipeline = load_any(order.model, order.settings)
    except (TenutoError, OSError) as error:
        _send(line, frame(Kind.REFUSED, str(error).encode(errors="replace")))
        return
    if isinstance(pipeline, EmbeddingPipeline):
        _send(line, frame(Kind.VECTORS))
        return
    _send(line, frame(Kind.OPENED, OPENED.dump_json(_opened(pipeline, stamp))))
    limits = settings.get()

    def report(report: Report) -> None:
        _send(line, reports.encoded(report))

    report(Report([], EngineStatus()))  # it has come so far
    worker.set_result(worker_of(pipeline, limits, report))
    while worker.result().work(True) is not Next.ENDED:
        pass
    ended.set()


def _opened(pipeline: Pipeline, stamp: str) -> Opened:
    return Opened(pipeline.backend.info, pipeline.defaults, pipeline.layout, pipeline.trial, stamp)


def _stamp(order: Order) -> str:
    """Of the files that are about to be read: where they are replaced meanwhile, the next process has another one."""
    return str(size_of(found(order.model, order.settings)[0]).stamp)


def _read(
    incoming: Incoming, settings: "queue.SimpleQueue[EngineSettings]", worker: Future[Worker], ended: threading.Event
) -> None:
    """Pass on what the parent sends; end the process once it is gone, whatever a native library is doing."""
    try:
        for kind, payload in incoming:
            if kind is Kind.BEGIN:
                settings.put(pickle.loads(payload))
            else:
                worker.result().commands.put(commands.decoded(kind, payload))
    except Exception:  # another version of this program may have been installed since; who hears no more is to end
        logger.exception("what the server sends cannot be read")
        os._exit(1)
    if worker.done():
        worker.result().abandon()  # the next server may be asked to delete their sessions before this has ended
        worker.result().commands.put(Stop())
        ended.wait(_LAST_STEP_S)
    os._exit(0)


def _incoming(line: socket.socket) -> Incoming:
    """What the parent sends, until it is gone."""
    frames = Frames()
    while data := _received(line):
        yield from frames.push(data)


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(_READ)
    except OSError:
        return b""


def _send(line: socket.socket, data: bytes) -> None:
    """Send it all; waits for a parent that is slow to read. That one is gone is noticed by who reads."""
    try:
        line.sendall(data)
    except OSError:
        return


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
