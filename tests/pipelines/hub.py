"""Enough of the Hugging Face Hub for the loader, over real HTTP."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    """Enough of the Hugging Face Hub: the tree of one repository, and its files with ranges behind a redirect."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files: dict[str, bytes] = {}
        self.listed_sha: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.break_after: int | None = None
        self.honours_ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path, wanted = self.path.partition("?")[0], self.headers.get("Range")
        self.server.requests.append((path, wanted))
        if path == "/api/models/owner/model/tree/main":
            self._send(200, json.dumps(self._tree()).encode())
        elif path.startswith("/owner/model/resolve/main/"):
            self.send_response(302)
            self.send_header("Location", f"{self.server.url}/files/{path.rpartition('/')[2]}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.startswith("/files/"):
            self._send_file(self.server.files[path.rpartition("/")[2]], wanted)
        else:
            self._send(404, b"")

    def _tree(self) -> list[dict[str, Any]]:
        def entry(name: str, data: bytes) -> dict[str, Any]:
            sha = self.server.listed_sha.get(name, hashlib.sha256(data).hexdigest())
            return {"type": "file", "path": name, "size": len(data), "oid": "x", "lfs": {"oid": sha, "size": len(data)}}

        return [entry(name, data) for name, data in self.server.files.items()]

    def _send_file(self, data: bytes, wanted: str | None) -> None:
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.honours_ranges else 0
        self._send(206 if begin else 200, data[begin:], self.server.break_after)

    def _send(self, status: int, body: bytes, break_after: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:break_after])
        if break_after is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        pass
