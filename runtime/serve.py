"""Serving until told to stop: the listening socket, uvicorn, the ready line, signals and the drain. No composition."""

import asyncio
import contextlib
import errno
import functools
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import anyio
import uvicorn

from tenuto.errors import ConfigurationError
from tenuto.runtime import allocator, log_output
from tenuto.runtime.app import App, opened
from tenuto.runtime.config import Settings
from tenuto.runtime.garbage import Collector
from tenuto.runtime.http.connection_table import Table
from tenuto.runtime.http.connections import Bounds, Connection, check
from tenuto.runtime.http.sockets import Socket
from tenuto.runtime.watchdog import Watchdog

logger = logging.getLogger(__name__)

BACKLOG = 2048
KEEP_ALIVE_S = 75
"""For how long a connection without a request stays open. Clients close theirs after 4 to 60 s, most after 5: a server
that closes first may do so just when a request is on its way."""
GOODBYE_S = 2
"""How long, once no run is under way, the last bytes may take to their readers. Uvicorn counts in whole seconds."""
TICKS_A_SECOND = 10
REST_S = 3
"""After so long without a request's end, and with no run at work, nobody waits for the server."""


def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then drain and return. Main thread only.

    Raises:
        TenutoError: it cannot start; the text says why.
    """
    allocator.keep_little()
    log_output.to_stderr(settings.log_level)
    watchdog = None if sys.platform == "win32" else Watchdog(settings.shutdown_s)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, watchdog))


async def _serve(settings: Settings, watchdog: Watchdog | None) -> None:
    with listening(settings.host, settings.port) as listener:
        url = url_of(listener)
        async with opened(settings) as app:
            await Server(app, url, settings, watchdog).serve([listener])


class Server(uvicorn.Server):
    """uvicorn, with a ready line, a drain of the runs while it stops, and a clean end after a signal."""

    def __init__(self, app: App, url: str, settings: Settings, watchdog: Watchdog | None = None) -> None:
        bounds = Bounds(settings.arrival_s, settings.patience_s, settings.max_connections, settings.max_head_bytes)
        table = Table(bounds.most)
        # uvicorn calls these as it would call a class.
        connection: Any = functools.partial(Connection, bounds, table, app.errors_of)
        socket: Any = functools.partial(Socket, table, bounds.arrival_s, bounds.patience_s)
        super().__init__(
            uvicorn.Config(
                app.asgi,
                http=connection,
                lifespan="off",
                ws=socket,
                ws_max_size=settings.max_body_bytes,
                ws_per_message_deflate=False,
                ws_ping_timeout=settings.patience_s,  # an answer to a ping comes after all that is still unread
                access_log=False,
                log_config=None,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GOODBYE_S,
            )
        )
        self._app, self._url, self._watchdog = app, url, watchdog
        self._collector = Collector()
        self._answered, self._answered_at = 0, 0
        """How many requests had been answered when that last changed, and in which second."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, then say so."""
        await super().startup(sockets)
        self._app.publish(self._url)
        self._collector.settle()
        print(f"tenuto ready on {self._url}", flush=True)  # noqa: T201  (what starts us waits for this line)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, by uvicorn; true when it is time to stop."""
        if counter % TICKS_A_SECOND == 0:
            check(self.server_state.connections)
            self._rest_if_idle(counter // TICKS_A_SECOND)
        return await super().on_tick(counter)

    def _rest_if_idle(self, second: int) -> None:
        answered = self.server_state.total_requests
        if answered != self._answered or second < self._answered_at or self._app.is_working():
            self._answered, self._answered_at = answered, second
        elif second - self._answered_at >= REST_S:
            self._collector.rest()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the runs end, for as long as the settings allow; who asks for a new one meanwhile is told to go."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._when_forced, group.cancel_scope)
            await self._app.drain()
            group.cancel_scope.cancel()
        await super().shutdown(sockets)

    async def _when_forced(self, drain: anyio.CancelScope) -> None:
        while not self.force_exit:  # noqa: ASYNC110  (a signal handler sets it)
            await anyio.sleep(1 / TICKS_A_SECOND)
        drain.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the drain, the second ends it at once."""
        del frame
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        logger.info("%s: %s", signal.Signals(sig).name, "stopping at once" if self.force_exit else "draining")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the server; uvicorn would raise them again afterwards and so hide a clean end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        if self._watchdog is not None:
            self._watchdog.watch()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket; port 0 takes a free one. It is bound first, so that its address is known to all that follows.

    Raises:
        ConfigurationError: the port is taken, or the address is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {host}: {exc.strerror}") from exc
    with listener:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise ConfigurationError(f"port {port} on {host} is in use; choose another --port, 0 for any") from exc
            raise ConfigurationError(f"cannot listen on {host} port {port}: {exc.strerror}") from exc
        yield listener


def url_of(listener: socket.socket) -> str:
    """Where clients reach a socket; one bound to all addresses is reached by loopback."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
