"""A listener between a client and its server: it passes everything on as it comes, and keeps what it was."""

import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

ANSWER_S = 120.0
_OWN = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "date", "server"}


@dataclass(frozen=True)
class Exchange:
    """A request of a dialect with a body, and its answer as the client read it."""

    path: str
    body: dict[str, Any]
    status: int
    session: str | None
    answer: str

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The rounds that the answer tells the figures of."""
        lines = [line.removeprefix("data: ") for line in self.answer.split("\n") if line.startswith("data: {")]
        events = [json.loads(line) for line in lines or [self.answer]]
        usages = [event.get("usage") or (event.get("response") or {}).get("usage") or {} for event in events]
        told = [usage["tenuto"]["rounds"] for usage in usages if "tenuto" in usage]
        return list(told[-1]) if told else []


@dataclass
class Wire:
    """Where clients are to go, and what was said since the last time that somebody took it."""

    url: str
    kept: list[Exchange] = field(default_factory=list)

    def take(self) -> list[Exchange]:
        """What was said, which is forgotten then."""
        taken, self.kept = self.kept, []
        return taken


@contextmanager
def listening(url: str) -> Iterator[Wire]:
    """Listen before the server at an address."""
    upstream = urlsplit(url)

    class Handler(http.server.BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=ANSWER_S)
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            answer = b""
            with suppress(http.client.IncompleteRead, ConnectionError):  # one of them has ended
                while piece := response.read1(65536):
                    answer += piece
                    if self.command != "HEAD":
                        self.wfile.write(piece)
            connection.close()
            self.close_connection = True
            if body and self.path.startswith("/v1/"):
                session = response.headers.get("X-Tenuto-Session")
                made = Exchange(self.path, json.loads(body), response.status, session, answer.decode())
                wire.kept.append(made)

        def do_GET(self) -> None:  # the base class finds it by this name
            self.pass_on()

        def do_HEAD(self) -> None:
            self.pass_on()

        def do_POST(self) -> None:
            self.pass_on()

        def do_DELETE(self) -> None:
            self.pass_on()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        wire = Wire(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield wire
        finally:
            server.shutdown()
            thread.join(ANSWER_S)
