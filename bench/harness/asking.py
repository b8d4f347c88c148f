"""A client that costs little: whole and streamed answers over plain sockets, with the time of each piece.

What came is understood only after the last of it, so that this process takes little from the servers that it measures.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import httpx

CHAT = "/v1/chat/completions"
WAIT_S = 900.0
SENTENCE = "The ducks cross the bridge, and the geese follow them slowly. "


@dataclass(frozen=True)
class Answer:
    """A streamed answer: its events, and when each came."""

    began: float
    events: tuple[tuple[float, bytes], ...]

    @cached_property
    def told(self) -> list[tuple[float, dict[str, Any]]]:
        found = [(at, json.loads(event[6:])) for at, event in self.events if event.startswith(b"data: {")]
        for _, each in found:
            if "error" in each:
                raise RuntimeError(f"the server answered {each}")
        return found

    @cached_property
    def pieces(self) -> list[float]:
        """When each piece of what was said came."""
        return [at for at, each in self.told if any(_says(choice) for choice in each.get("choices", ()))]

    @cached_property
    def usage(self) -> dict[str, Any]:
        [*_, usage] = [each["usage"] for _, each in self.told if each.get("usage")]
        assert isinstance(usage, dict)
        return usage

    @property
    def tokens(self) -> int:
        count: int = self.usage["completion_tokens"]
        return count

    @property
    def first_s(self) -> float:
        return self.pieces[0] - self.began

    @property
    def ended(self) -> float:
        return self.pieces[-1]

    @property
    def tokens_s(self) -> float:
        """Tokens a second after the first."""
        return (self.tokens - 1) / max(self.pieces[-1] - self.pieces[0], 1e-9)


def _says(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(choice.get("text") or delta.get("content") or delta.get("tool_calls") or delta.get("reasoning_content"))


async def stream(url: str, body: dict[str, Any], path: str = CHAT, wait_s: float = WAIT_S) -> Answer:
    """Ask for a streamed answer and read it to its end.

    Raises:
        TimeoutError: it took longer than `wait_s`.
    """
    async with asyncio.timeout(wait_s):
        return await _stream(url, body, path)


async def _stream(url: str, body: dict[str, Any], path: str) -> Answer:
    address = urlsplit(url)
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    try:
        began = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in answer.partition(b"\r\n")[0] or b"chunked" not in answer:
            raise RuntimeError(f"the server answered {answer!r} {(await reader.read(1000))!r}")
        events: list[tuple[float, bytes]] = []
        left = b""
        while size := int(await reader.readline(), 16):
            chunk = await reader.readexactly(size + 2)
            at = time.perf_counter()
            *whole, left = (left + chunk[:-2]).split(b"\n\n")
            events += [(at, event) for event in whole]
        return Answer(began, tuple(events))
    finally:
        writer.close()


def ask(url: str, body: dict[str, Any], path: str = CHAT) -> dict[str, Any]:
    """A whole answer."""
    answer: dict[str, Any] = httpx.post(url + path, json=body, timeout=WAIT_S).raise_for_status().json()
    return answer


def user(text: str) -> dict[str, str]:
    """A message of a user."""
    return {"role": "user", "content": text}


def text_of(url: str, tokens: int, beginning: str = "") -> str:
    """A text of about so many tokens, as the server at the address counts them."""
    many = 64
    told = httpx.post(f"{url}/tokenize", json={"content": SENTENCE * many}, timeout=60).raise_for_status().json()
    each = len(told["tokens"]) / many
    return beginning + SENTENCE * max(1, round(tokens / each))
