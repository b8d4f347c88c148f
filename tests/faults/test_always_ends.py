"""After SIGTERM a server ends within its time, in whatever state it is; what started it need not kill it."""

import signal
import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.server import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs what Windows has not"),
]

SHUTDOWN_S = 1
MARGIN_S = 5
STUCK = str(Path(__file__).with_name("stuck.py"))
ENDED_BY_WATCHDOG = -int(getattr(signal, "SIGALRM", 0))


def within(server: Server, *signals: signal.Signals, seconds: float) -> int:
    """The exit code of a server that is told to stop; two seconds are for a busy machine."""
    assert server.process is not None
    begun = time.monotonic()
    for number in signals:
        server.process.send_signal(number)
        time.sleep(0.2)
    code = server.ended()
    assert time.monotonic() - begun < seconds + 2
    return code


def wait_for(server: Server, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in server.log:
        assert time.monotonic() < deadline, server.log
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("how", "number"),
    [("pattern", signal.SIGTERM), ("lock", signal.SIGINT), ("worker", signal.SIGTERM), ("thread", signal.SIGINT)],
)
def test_a_stuck_server_ends_after_a_signal_and_says_where_it_was(
    start: Start, how: str, number: signal.Signals
) -> None:
    server = start("--shutdown-s", str(SHUTDOWN_S), program=(STUCK, how))
    (server.folder / "stuck").touch()
    wait_for(server, "stuck")
    assert within(server, number, seconds=SHUTDOWN_S + MARGIN_S) == ENDED_BY_WATCHDOG
    assert f"it did not stop within {SHUTDOWN_S + MARGIN_S} s of {number.name}" in server.log
    assert "(most recent call first)" in server.log, "the log says where it was"


def test_a_second_signal_does_not_wait_for_the_drain_of_a_stuck_server(start: Start) -> None:
    server = start("--shutdown-s", "3600", program=(STUCK, "pattern"))
    (server.folder / "stuck").touch()
    wait_for(server, "stuck")
    assert within(server, signal.SIGTERM, signal.SIGTERM, seconds=MARGIN_S) == ENDED_BY_WATCHDOG


def test_a_server_whose_store_hangs_ends_after_a_signal(start: Start) -> None:
    server = start("--shutdown-s", str(SHUTDOWN_S))

    def ask() -> None:
        body = {"messages": [{"role": "user", "content": "hello"}], "session_id": "s"}
        with suppress(httpx.HTTPError), server.client() as client:
            client.post("/v1/chat/completions", json=body)

    with closing(sqlite3.connect(server.data_dir / "sessions.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
        assert within(server, signal.SIGTERM, seconds=SHUTDOWN_S + MARGIN_S) in (0, 1, ENDED_BY_WATCHDOG)
        asking.join(20)


def test_the_watchdog_leaves_alone_a_server_that_stops_and_is_gone_with_it(start: Start) -> None:
    server = start("--shutdown-s", str(SHUTDOWN_S))
    assert server.process is not None
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    assert children
    assert server.stop() == 0
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "did not stop" not in server.log
