"""What hostile clients send, made from a seed: raw heads, broken framing, half-closed connections, mutated requests."""

import gzip
import json
import random
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode

from tests.fuzz.asked import BY_HAND, RECORDED, Asked, Told

PATIENCE_S = 20.0
JSON = b"application/json"
TYPES = [b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=utf-16", b"", b"\xff"]
FIELDS = [
    b"X-Tenuto-Session: one",
    b"X-Tenuto-Session: \xc3\xa9",
    b"X-Tenuto-Events: 1",
    b"Idempotency-Key: one",
    b"Idempotency-Key: two",
    b"Last-Event-ID: 1",
    b"Origin: http://localhost",
    b"Origin: null",
    b"anthropic-version: 2023-06-01",
    b"x-api-key: \xff",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
]
HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXTS = [
    *(b"1" * 5000, b"-1e999", b"1e400", b"0.1e-400", b"NaN", b"1.0", b"-0", b"tru", b'"\\ud800"', b'"\\u0000"'),
    *(b'"\xed\xa0\x80"', '"\u202e\u2028\ufeff"'.encode(), b'{"a":1,"a":2}', b"[[[[]]]]", b"\xef\xbb\xbf1"),
]
"""What JSON texts hold that no value of Python's is written as."""


class Hostile:
    """One client that does hostile things, each on a connection of its own. Not thread-safe."""

    def __init__(self, url: str, seed: int, told: Told) -> None:
        self.sent = ""
        """The first line and the size of what was sent last."""
        address = urlsplit(url)
        self._address = (address.hostname or "", address.port or 0)
        self._random = random.Random(seed)
        self._told = told
        self._things: list[Callable[[], bytes]] = [
            *[self._mutated] * 6,
            *[self._honest] * 4,
            *[self._sockets] * 3,
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
        said = b""
        with suppress(OSError):
            said = thing()
        self._told.learn(said)
        return thing.__name__, said

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

    def _asked(self) -> Asked:
        return self._random.choice(self._random.choice([BY_HAND, RECORDED]))

    def _head(self, asked: Asked, length: int | None, kind: bytes = JSON, more: bytes = b"") -> bytes:
        framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
        line = f"{asked.method} {self._told.put(asked.path, self._random)} HTTP/1.1\r\n".encode()
        common = b"Host: 127.0.0.1\r\nContent-Type: %s\r\nAccept: application/json, text/event-stream\r\n" % kind
        return line + common + b"Connection: close\r\n" + more + framing + b"\r\n\r\n"

    def _json(self, value: object) -> bytes:
        text = self._told.put(json.dumps(value, ensure_ascii=self._random.random() < 0.5), self._random)
        return text.encode("utf-8", "surrogatepass")

    def _body(self, asked: Asked) -> bytes:
        """A body that was meant for this path once, or for another one."""
        if self._random.random() < 0.1:
            asked = self._asked()
        if asked.body is None and self._random.random() < 0.9:
            return b""
        text = self._json(self._mutate(json.loads(json.dumps(asked.body))))
        if self._random.random() < 0.2:
            text = self._scratched(text)
        return self._overwritten(text) if self._random.random() < 0.2 else text

    def _scratched(self, text: bytes) -> bytes:
        scratched = bytearray(text)
        for _ in range(self._random.randrange(1, 6)):
            if scratched:
                scratched[self._random.randrange(len(scratched))] = self._random.randrange(256)
        return bytes(scratched)

    def _overwritten(self, text: bytes) -> bytes:
        """A text of JSON with one of its values written otherwise, or one of its members twice."""
        places = [place for place in range(len(text)) if text[place : place + 1] == b":"]
        if not places:
            return text
        place = self._random.choice(places) + 1
        odd = self._random.choice(TEXTS)
        name = text[:place].rpartition(b",")[2].rpartition(b"{")[2]
        return text[:place] + odd + b"," + name + text[place:]

    def _odd(self) -> object:
        odd: list[object] = [None, True, -1, 2**63, 2**70, 1e308, -0.0, "", "\0", "\ud800", "é" * 1000, [], {}, [[]]]
        odd += ["x" * 70_000, [{}] * 500, {"$ref": "#"}, {"type": "object", "$schema": []}, ["a"] * 3, "one", "../two"]
        odd += ["{resp}", "{conv}", "{item}", "{call}", {"type": "null"}, "data:image/png;base64,AAAA", "long", "tool"]
        return self._random.choice(odd)

    def _mutate(self, value: object, depth: int = 0) -> object:
        if self._random.random() < 0.04 + 0.02 * depth:
            return self._odd()
        if isinstance(value, dict):
            changed = {
                key: self._mutate(each, depth + 1) for key, each in value.items() if self._random.random() > 0.03
            }
            if self._random.random() < 0.05:
                names = ["model", "stop", "seed", "tools", "temperature", "\0", "store", "input", "text", "metadata"]
                changed[self._random.choice(names)] = self._odd()
            return changed
        if isinstance(value, list):
            return [
                self._mutate(each, depth + 1) for each in value for _ in range(self._random.choice([1, 1, 1, 0, 2]))
            ]
        return value

    def _mutated(self) -> bytes:
        asked = self._asked()
        body, kind, more = self._body(asked), JSON, b""
        if self._random.random() < 0.1:
            kind = self._random.choice(TYPES)
        if self._random.random() < 0.2:
            more = b"".join(field + b"\r\n" for field in self._random.choices(FIELDS, k=2))
        if self._random.random() < 0.1:
            packed = gzip.compress(body) if self._random.random() < 0.5 else zlib.compress(body)
            more += b"Content-Encoding: %s\r\n" % self._random.choice([b"gzip", b"deflate", b"br"])
            body = packed if self._random.random() < 0.7 else self._scratched(packed)
        return self._talk(self._head(asked, len(body), kind, more), body)

    def _honest(self) -> bytes:
        """Nothing is wrong with it but when it comes, and when its client goes."""
        asked = self._random.choice(BY_HAND)
        body = b"" if asked.body is None else self._json(asked.body)
        return self._talk(self._head(asked, len(body)), body, read=self._random.random() < 0.9)

    def _sockets(self) -> bytes:
        """A WebSocket with some messages, one after the other or all at once."""
        pieces = [HANDSHAKE]
        for _ in range(self._random.randrange(1, 8)):
            asked = self._asked()
            while asked.path != "/v1/responses" or asked.method != "POST":
                asked = self._asked()
            value = {"type": "response.create", **asked.body}
            value.pop("background", None)
            if self._random.random() < 0.2:
                value["generate"] = False
            opcode = self._random.choice([Opcode.TEXT] * 4 + [Opcode.BINARY, Opcode.PING, Opcode.CLOSE, Opcode.CONT])
            data = self._json(self._mutate(value) if self._random.random() < 0.5 else value)
            fin = self._random.random() < 0.95
            if opcode in (Opcode.PING, Opcode.CLOSE):
                data, fin = data[:100], True
            framed = Frame(opcode, data, fin).serialize(mask=self._random.random() < 0.98)
            pieces.append(self._scratched(framed) if self._random.random() < 0.05 else framed)
        gone = self._random.random() < 0.2
        return self._talk(*pieces, read=not gone, pause_s=self._random.choice([0.0, 0.01, 0.1]))

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
        asked = self._asked()
        body = self._body(asked)
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
        return self._talk(self._head(asked, None), broken)

    def _half_closed(self) -> bytes:
        asked = self._asked()
        body = self._body(asked)
        return self._talk(self._head(asked, len(body)), body[: self._random.randrange(len(body) + 1)], end=True)

    def _gone_in_body(self) -> bytes:
        asked = self._asked()
        body = self._body(asked)
        return self._talk(self._head(asked, len(body) + 10), body, read=False)

    def _gone_in_stream(self) -> bytes:
        asked = self._random.choice(
            [
                Asked("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "long"}]}),
                Asked("POST", "/v1/responses", {"input": "long"}),
                Asked("POST", "/v1/messages", {"messages": [{"role": "user", "content": "long"}], "max_tokens": 2000}),
                Asked("POST", "/api/chat", {"messages": [{"role": "user", "content": "long"}]}),
            ]
        )
        body = self._json({**asked.body, "model": "default", "stream": True})
        return self._talk(self._head(asked, len(body)), body, read=False, pause_s=self._random.random() * 0.05)

    def _drip(self) -> bytes:
        head = self._head(Asked("GET", "/v1/models"), 0)
        return self._talk(*(head[n : n + 7] for n in range(0, len(head), 7)), pause_s=0.002)

    def _deep(self) -> bytes:
        openings = [
            b"[",
            b'{"a":',
            b'{"messages":[{"role":"user","content":[',
            b'{"input":[{"content":[',
            b'{"tools":[',
        ]
        body = self._random.choice(openings) * self._random.choice([100, 300, 100_000])
        return self._talk(self._head(self._asked(), len(body)), body)

    def _large(self) -> bytes:
        piece, times = self._random.choice(
            [(b"0,", 300_000), (b"{},", 100_000), (b'"",', 200_000), (b'"a":1,', 100_000), (b"x", 1 << 20)]
        )
        name = self._random.choice([b"messages", b"input", b"items", b"tools", b"documents", b"metadata"])
        body = b'{"%s":[' % name + piece * times + b"0]}"
        return self._talk(self._head(self._asked(), len(body)), body)
