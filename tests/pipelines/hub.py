"""Enough of the Hugging Face Hub for the loader, over real HTTP."""

import hashlib
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Enough of the Hugging Face Hub: what it says of one repository, and its files with ranges behind a redirect to
    another host. `break_after`: a file breaks off there, however often it is asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files: dict[str, bytes] = {}
        self.commit = COMMIT
        self.listed_sha: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.tokens: list[tuple[str, str | None]] = []
        self.token: str | None = None
        self.break_after: int | None = None
        self.honours_ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        """What the library asks before it downloads: where the file lies, and what it is."""
        name = self._asked_for()
        self._redirect(name) if name is not None else self._send(404, b"")

    def do_GET(self) -> None:
        path, wanted = self.path.partition("?")[0], self.headers.get("Range")
        self.server.requests.append((path, wanted))
        self.server.tokens.append((path, self.headers.get("Authorization")))
        if self.server.token is not None and path.startswith("/api/") and not self._has_token():
            self._send(401, b"")
        elif path == "/api/models/owner/model":
            self._send(200, json.dumps(self._info()).encode())
        elif (name := self._asked_for()) is not None:
            self._redirect(name)
        elif path.startswith("/files/"):
            self._send_file(self.server.files[path.removeprefix("/files/")], wanted)
        else:
            self._send(404, b"")

    def _has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.server.token}"

    def _asked_for(self) -> str | None:
        """The file that a path names, where there is one."""
        begin = f"/owner/model/resolve/{self.server.commit}/"
        name = self.path.removeprefix(begin)
        return name if self.path.startswith(begin) and name in self.server.files else None

    def _sha(self, name: str) -> str:
        return self.server.listed_sha.get(name, hashlib.sha256(self.server.files[name]).hexdigest())

    def _info(self) -> dict[str, Any]:
        def sibling(name: str, data: bytes) -> dict[str, Any]:
            large = {"sha256": self._sha(name), "size": len(data), "pointerSize": 134}
            return {"rfilename": name, "size": len(data), "blobId": "x", "lfs": large}

        return {
            "id": "owner/model",
            "sha": self.server.commit,
            "siblings": [sibling(*file) for file in self.server.files.items()],
        }

    def _redirect(self, name: str) -> None:
        """To the server of files, which is another host."""
        self.send_response(302)
        self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/files/{name}")
        self.send_header("X-Repo-Commit", self.server.commit)
        self.send_header("X-Linked-Etag", f'"{self._sha(name)}"')
        self.send_header("X-Linked-Size", str(len(self.server.files[name])))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, data: bytes, wanted: str | None) -> None:
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.honours_ranges else 0
        limit = None if self.server.break_after is None else max(self.server.break_after - begin, 0)
        span = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        self._send(206 if begin else 200, data[begin:], limit, {"Content-Range": span} if begin else {})

    def _send(
        self,
        status: int,
        body: bytes,
        break_after: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        for header in headers.items():
            self.send_header(*header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:break_after])
        if break_after is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        pass
