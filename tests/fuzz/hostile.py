"""What hostile clients send, made from a seed: raw heads, broken framing, half-closed connections, mutated requests."""

import json
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

PATIENCE_S = 20.0
ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("PUT", "/v1/sessions/one"),
    ("POST", "/v1/sessions/one/fork"),
    ("POST", "/v1/agent/approvals/nobody"),
    ("POST", "/v1/runs/nobody/cancel"),
    ("POST", "/mcp"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/sessions/one"),
    ("GET", "/v1/models"),
    ("GET", "/v1/runs/nobody/events?after=0"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("DELETE", "/v1/sessions/two"),
    ("OPTIONS", "/v1/models"),
    ("GET", "/nowhere"),
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
SAID = [{"role": "user", "content": "hello"}]
VALID: list[dict[str, object]] = [
    {"messages": SAID},
    {"messages": SAID, "stream": True, "max_tokens": 50},
    {"messages": SAID, "session_id": "one", "tools": [TOOL], "tool_choice": "auto"},
    {"messages": [{"role": "user", "content": "tool"}], "session_id": "two", "stream": True},
    {"messages": SAID, "n": 2, "logprobs": True, "response_format": {"type": "json_object"}},
    {"prompt": "hello", "max_tokens": 3, "stream": True},
    {"content": "hello", "with_pieces": True},
    {"tokens": [104, 105]},
    {"version": 1, "created_at": 0, "updated_at": 0, "items": [{"kind": "user", "text": "a", "attachments": []}]},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "chat", "arguments": {"message": "hello"}}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    {"at": 0, "session_id": "three"},
    {"decision": "approve"},
]


class Hostile:
    """One client that does hostile things, each on a connection of its own. Not thread-safe."""

    def __init__(self, url: str, seed: int) -> None:
        self.sent = ""
        """The first line and the size of what was sent last."""
        address = urlsplit(url)
        self._address = (address.hostname or "", address.port or 0)
        self._random = random.Random(seed)
        self._things: list[Callable[[], bytes]] = [
            self._mutated,
            self._mutated,
            self._mutated,
            self._raw_head,
            self._framing,
            self._half_closed,
            self._gone_in_body,
            self._gone_in_stream,
            self._drip,
            self._deep,
            self._large,
        ]

    def act(self) -> tuple[str, bytes]:
        """Do one thing; its name, and what the server said."""
        thing = self._random.choice(self._things)
        with suppress(OSError):
            return thing.__name__, thing()
        return thing.__name__, b""

    def _talk(self, *pieces: bytes, read: bool = True, pause_s: float = 0.0, end: bool = False) -> bytes:
        received = b""
        self.sent = f"{pieces[0][:60].partition(b' HTTP')[0]!r}, {sum(map(len, pieces))} bytes"
        with socket.create_connection(self._address, timeout=PATIENCE_S) as client:
            with suppress(OSError):
                for piece in pieces:
                    client.sendall(piece)
                    time.sleep(pause_s)
                if end:
                    client.shutdown(socket.SHUT_WR)
            if read:
                client.settimeout(self._random.choice([0.05, 0.5, 2.0]))
                with suppress(OSError):
                    while len(received) < 1 << 20 and (piece := client.recv(65536)):
                        received += piece
        return received

    def _head(self, length: int | None, more: bytes = b"", route: tuple[str, str] | None = None) -> bytes:
        method, path = route or self._random.choice(ROUTES)
        framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
        common = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        line = f"{method} {path} HTTP/1.1\r\n".encode()
        return line + common + b"Connection: close\r\n" + more + framing + b"\r\n\r\n"

    def _body(self) -> bytes:
        value = self._mutate(json.loads(json.dumps(self._random.choice(VALID))))
        text = json.dumps(value, ensure_ascii=self._random.random() < 0.5).encode("utf-8", "surrogatepass")
        if self._random.random() < 0.2:
            text = self._scratched(text)
        return text

    def _scratched(self, text: bytes) -> bytes:
        scratched = bytearray(text)
        for _ in range(self._random.randrange(1, 6)):
            if scratched:
                scratched[self._random.randrange(len(scratched))] = self._random.randrange(256)
        return bytes(scratched)

    def _odd(self) -> object:
        odd: list[object] = [None, True, -1, 2**63, 2**70, 1e308, -0.0, "", "\0", "\ud800", "é" * 1000, [], {}, [[]]]
        odd += ["x" * 70_000, [{}] * 500, {"$ref": "#"}, {"type": "object", "$schema": []}, ["a"] * 3, "one", "../two"]
        return self._random.choice(odd)

    def _mutate(self, value: object, depth: int = 0) -> object:
        if self._random.random() < 0.08 + 0.02 * depth:
            return self._odd()
        if isinstance(value, dict):
            changed = {
                key: self._mutate(each, depth + 1) for key, each in value.items() if self._random.random() > 0.03
            }
            if self._random.random() < 0.05:
                changed[self._random.choice(["model", "stop", "seed", "tools", "temperature", "\0", "store"])] = (
                    self._odd()
                )
            return changed
        if isinstance(value, list):
            return [
                self._mutate(each, depth + 1) for each in value for _ in range(self._random.choice([1, 1, 1, 0, 2]))
            ]
        return value

    def _mutated(self) -> bytes:
        body = self._body()
        return self._talk(self._head(len(body)), body)

    def _raw_head(self) -> bytes:
        begin = self._random.choice(
            [b"GET /health HTTP/1.1\r\n", b"GET / HTTP/9.9\r\n", b"\0\0\0", b"PRI * HTTP/2.0\r\n\r\n"]
        )
        fields = [b"X: " + b"x" * self._random.choice([0, 10, 70_000, 1 << 20]), b"no colon", b": none", b"Host: a b"]
        fields += [b"Host: 127.0.0.1", b"Content-Length: -1", b"Content-Length: 9" * 2, b"Upgrade: websocket"]
        fields += [
            b"Connection: upgrade",
            b"Transfer-Encoding: gzip, chunked",
            b"Authorization: Bearer \xff",
            b"\xff: \xff",
        ]
        chosen = self._random.choices(fields, k=self._random.randrange(1, 8))
        return self._talk(
            begin + b"\r\n".join(chosen), b"\r\n\r\n" * self._random.randrange(2), end=self._random.random() < 0.3
        )

    def _framing(self) -> bytes:
        body = self._body()
        size = b"%x" % len(body)
        broken = self._random.choice(
            [
                size + b"\r\n" + body + b"\r\n0\r\n\r\n",
                size + b";" + b"e" * 100_000 + b"\r\n" + body + b"\r\n0\r\n\r\n",
                size + b"\r\n" + body + b"\r\n0\r\n" + b"T: t\r\n" * 20_000 + b"\r\n",
                b"ffffffffffffffff\r\n" + body,
                b"-1\r\n" + body,
                b"zz\r\n",
                size + b"\r\n" + body + b"X\r\n0\r\n\r\n",
                b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n",
            ]
        )
        return self._talk(self._head(None), broken)

    def _half_closed(self) -> bytes:
        body = self._body()
        return self._talk(self._head(len(body)), body[: self._random.randrange(len(body) + 1)], end=True)

    def _gone_in_body(self) -> bytes:
        body = self._body()
        return self._talk(self._head(len(body) + 10), body, read=False)

    def _gone_in_stream(self) -> bytes:
        body = json.dumps(
            {"messages": [{"role": "user", "content": "long"}], "stream": True, "max_tokens": 2000}
        ).encode()
        route = ("POST", "/v1/chat/completions")
        return self._talk(self._head(len(body), route=route), body, read=False, pause_s=self._random.random() * 0.05)

    def _drip(self) -> bytes:
        head = self._head(0, route=("GET", "/v1/models"))
        return self._talk(*(head[n : n + 7] for n in range(0, len(head), 7)), pause_s=0.002)

    def _deep(self) -> bytes:
        opening = self._random.choice([b"[", b'{"a":', b'{"messages":[{"role":"user","content":['])
        body = opening * self._random.choice([100, 300, 100_000])
        return self._talk(self._head(len(body)), body)

    def _large(self) -> bytes:
        piece, times = self._random.choice(
            [(b"0,", 300_000), (b"{},", 100_000), (b'"",', 200_000), (b'"a":1,', 100_000), (b"x", 1 << 20)]
        )
        body = b'{"messages":[' + piece * times + b"0]}"
        return self._talk(self._head(len(body)), body)
