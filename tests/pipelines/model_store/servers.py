"""A web server of files and a registry of Ollama's, over real HTTP, that break off or stand still where told."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import HANGS_S


class Files(ThreadingHTTPServer):
    """Files by their paths, with ETags and ranges. `break_after`: an answer ends at that byte of its file, however
    often it is asked for; `stand_still_at`: there it waits until `go_on`, or until its client has `left`.
    `closes_kept`: a connection that is used again is closed without an answer; `closes_new`: so many new ones are.
    `answers`: what is answered at a path instead, one after the other, and then the connection is closed; `lengths`:
    which lengths it claims. PUT lets it have something else."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.authorizations: list[tuple[str | None, str | None]] = []
        self.answers: dict[str, list[tuple[int, dict[str, str]]]] = {}
        self.lengths: dict[str, str] = {}
        self.break_after: int | None = None
        self.stand_still_at: int | None = None
        self.go_on = threading.Event()
        self.waits_for_leaving = False
        self.left = threading.Event()
        self.closes_kept = False
        self.closes_new = 0
        self.closed = 0
        self.honours_ranges = True
        self.has_tags = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has left: many tests are about that."""

    def asked(self, path: str) -> list[str | None]:
        """The ranges of a file that were asked for."""
        return [wanted for method, each, wanted in self.requests if (method, each) == ("GET", path)]

    def tag(self, path: str) -> str:
        return self.tags.get(path) or f'"{hashlib.md5(self.files[path]).hexdigest()}"'

    def add_ollama(self, name: str, layers: dict[str, bytes], tag: str = "latest") -> None:
        """Have a model in the registry, its blobs on another host."""
        listed = []
        for kind, content in layers.items():
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            listed.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest, "size": len(content)})
            self.files[f"/cdn/{digest}"] = content
            self.moved[f"/v2/{name}/blobs/{digest}"] = f"http://localhost:{self.server_address[1]}/cdn/{digest}"
        manifest = {"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64, "size": 2}, "layers": listed}
        self.files[f"/v2/{name}/manifests/{tag}"] = json.dumps(manifest).encode()


class _Answers(BaseHTTPRequestHandler):
    server: Files
    protocol_version = "HTTP/1.1"
    is_used = False
    """Whether something was asked over this connection before; there is one of these for each."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_PUT(self) -> None:
        """Have this content from now on, at a path or as the model of that name in the registry."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith(".gguf"):
            self.server.files[self.path] = content
        else:
            self.server.add_ollama(self.path.removeprefix("/"), {"model": content})
        self._head(204, {})

    def _answer(self, *, with_body: bool) -> None:
        server, wanted = self.server, self.headers.get("Range")
        is_kept, self.is_used = self.is_used, True
        if server.closes_kept if is_kept else server.closed < server.closes_new:
            server.closed += 1
            self.close_connection = True
            return
        server.requests.append((self.command, self.path, wanted))
        server.authorizations.append((self.headers.get("Host"), self.headers.get("Authorization")))
        if server.answers.get(self.path):
            status, headers = server.answers[self.path].pop(0)
            self._head(status, {"Content-Length": "0", **headers})
            self.close_connection = not server.closes_kept  # which close it themselves
            return
        if self.path in server.moved:
            self._head(307, {"Location": server.moved[self.path], "Content-Length": "0"})
            return
        content = server.files.get(self.path)
        if content is None:
            self._head(404, {"Content-Length": "0"})
            return
        begin, tag = 0, server.tag(self.path)
        if wanted and server.honours_ranges and self.headers.get("If-Range", tag) == tag:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        length = server.lengths.get(self.path, str(len(content) - begin))
        headers = {"Content-Length": length, **({"ETag": tag} if server.has_tags else {})}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        self._head(206 if begin else 200, headers)
        if with_body and "/manifests/" not in self.path and not self.path.endswith(".json"):
            self._body(content, begin)
        elif with_body:
            self.wfile.write(content)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self, content: bytes, begin: int) -> None:
        still = self.server.stand_still_at
        if still is not None:
            self.wfile.write(content[begin:still])
            self.wfile.flush()
            if self.server.waits_for_leaving:
                self._wait_for_leaving()
                return
            self.server.go_on.wait(HANGS_S)
            begin = max(begin, still)
        end = self.server.break_after
        try:
            self.wfile.write(content[begin:end])
        except OSError:
            self.close_connection = True  # whoever asked is gone
        if end is not None and end < len(content):
            self.close_connection = True

    def _wait_for_leaving(self) -> None:
        self.close_connection = True
        self.connection.settimeout(HANGS_S)
        try:
            gone = not self.connection.recv(1)
        except ConnectionResetError:
            gone = True
        if gone:
            self.server.left.set()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        pass


@contextmanager
def serving(server: Files) -> Iterator[Files]:
    """Serve until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join(5)
        server.server_close()
