"""What turns leave behind: the server's memory and its database after many one-shot turns with a large tool block.

Starts a server of its own with a scripted model. Every turn is a request of its own with all tools and without a
session, as many clients send them. Memory is told of turns that are not stored, the database's growth of such that
are. Exit code 1 where either is beyond its limit.

    .venv/bin/python bench/memory_at_rest.py --turns 100000 --stored 5000
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

READY = "tenuto ready on "
FIRST = 1000
"""Memory after so many turns is what later memory is compared with."""
MOST_MB = 100.0
MOST_BYTES = 2048
CLIENTS = 4
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def tools(count: int, letters: int) -> list[dict[str, Any]]:
    """A tool block as agents send it."""
    texts = [f"Tool {number}. " + "It does what it says. " * (letters // 22) for number in range(count)]
    functions = [
        {"name": f"tool_{number}", "description": text, "parameters": WORD} for number, text in enumerate(texts)
    ]
    return [{"type": "function", "function": function} for function in functions]


class Served:
    """A server process and its data folder."""

    def __init__(self, folder: Path) -> None:
        model = folder / "model.json"
        model.write_text(json.dumps({"rules": [{"user_contains": "", "text": "ok"}], "cells": 400_000}))
        self.data = folder / "data"
        arguments = ["serve", "--port", "0", "--data-dir", str(self.data), "--model", f"scripted:{model}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tenuto", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), line
        self.url = line.removeprefix(READY).strip()

    def memory_mb(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def database_bytes(self) -> int:
        """The database itself; what waits in its log is written over, not added to."""
        return (self.data / "sessions.db").stat().st_size

    def log_bytes(self) -> int:
        """The write-ahead log."""
        path = self.data / "sessions.db-wal"
        return path.stat().st_size if path.exists() else 0


async def talk(served: Served, turns: int, block: list[dict[str, Any]], *, store: bool, show: int) -> float:
    """So many one-shot turns; the memory after the first ones."""
    numbers = iter(range(turns))
    early = 0.0
    begun = time.monotonic()
    body = {"tools": block, "store": store, "max_tokens": 8}

    async def client() -> None:
        nonlocal early
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
            for number in numbers:
                said = {"role": "user", "content": f"question {number}"}
                answer = await http.post("/v1/chat/completions", json={**body, "messages": [said]})
                answer.raise_for_status()
                if number + 1 == FIRST:
                    early = served.memory_mb()
                if (number + 1) % show == 0:
                    each = 1000 * (time.monotonic() - begun) / (number + 1)
                    sizes = f"database {served.database_bytes() >> 10} KiB, log {served.log_bytes() >> 10} KiB"
                    print(f"{number + 1:>8} turns: {served.memory_mb():7.1f} MB, {sizes}, {each:.1f} ms", flush=True)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return early


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20_000, help="one-shot turns that are not stored")
    parser.add_argument("--stored", type=int, default=2_000, help="one-shot turns that are stored")
    parser.add_argument("--tools", type=int, default=60)
    parser.add_argument("--letters", type=int, default=1700, help="of each tool's description")
    given = parser.parse_args()
    block = tools(given.tools, given.letters)
    print(f"{given.tools} tools of {len(json.dumps(block)) >> 10} KiB together")
    right = True
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder))
        try:
            if given.turns > FIRST:
                early = asyncio.run(talk(served, given.turns, block, store=False, show=max(given.turns // 20, 1)))
                grown = served.memory_mb() - early
                right &= grown <= MOST_MB
                print(f"not stored: {grown:+.1f} MB since turn {FIRST} (at most {MOST_MB:g})")
            if given.stored:
                asyncio.run(talk(served, given.stored, block, store=True, show=max(given.stored // 5, 1)))
                before = served.database_bytes()
                asyncio.run(talk(served, given.stored, block, store=True, show=max(given.stored // 5, 1)))
                each = (served.database_bytes() - before) / given.stored
                right &= each < MOST_BYTES
                print(f"stored: {each:.0f} bytes a turn (less than {MOST_BYTES})")
        finally:
            served.process.terminate()
            served.process.wait(60)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
