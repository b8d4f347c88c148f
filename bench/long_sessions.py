"""What a turn costs in long sessions, and how long /health waits while a long session changes its tools.

Over HTTP, with a scripted model, so that what is measured is the server and not a model. Usage:
    python bench/long_sessions.py [--items 10 1000 10000] [--turns 50] [--changed 2000]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


@contextmanager
def server(folder: Path) -> Iterator[httpx.Client]:
    """A server of its own with a scripted model, and a client of it."""
    script = {"slots": 4, "cells": 1 << 20, "batch_tokens": 1 << 20, "rules": [{"text": "Very well."}]}
    (folder / "model.json").write_text(json.dumps(script))
    command = [sys.executable, "-m", "tenuto", "serve", "--model", f"scripted:{folder / 'model.json'}", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(folder / "data")], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        url = next(line for line in process.stdout if "ready on" in line).split()[-1]
        with httpx.Client(base_url=url, timeout=600.0) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def fill(client: httpx.Client, id: str, items: int) -> list[dict[str, Any]]:
    """Make a session of so many items; give what its client would repeat of it."""
    roles = ("user", "assistant")
    told = [{"role": roles[n % 2], "content": f"{roles[n % 2]} {n}"} for n in range(items)]
    document = {
        "version": 1,
        "created_at": 0.0,
        "updated_at": 0.0,
        "items": [{"kind": one["role"], "text": one["content"]} for one in told],
    }
    client.put(f"/v1/sessions/{id}", json=document).raise_for_status()
    return told


def ask(client: httpx.Client, **fields: Any) -> float:
    """Seconds of one turn."""
    begin = time.perf_counter()
    client.post("/v1/chat/completions", json={"model": "default", **fields}).raise_for_status()
    return time.perf_counter() - begin


def appended(client: httpx.Client, sizes: list[int], turns: int) -> dict[int, float]:
    """Median seconds of a turn that brings one message to a session of so many items."""
    say = [{"role": "user", "content": "And now?"}]
    for items in sizes:
        fill(client, f"append-{items}", items)
        ask(client, session_id=f"append-{items}", messages=say)  # renders what was imported
    return _interleaved(sizes, turns, lambda items: ask(client, session_id=f"append-{items}", messages=say))


def repeated(client: httpx.Client, sizes: list[int], turns: int) -> dict[int, float]:
    """Median seconds of a turn that repeats the whole history."""
    told = {items: fill(client, f"repeat-{items}", items) for items in sizes}

    def again(items: int) -> float:
        told[items].append({"role": "user", "content": "And now?"})
        took = ask(client, session_id=f"repeat-{items}", messages=told[items])
        told[items].append({"role": "assistant", "content": "Very well."})
        return took

    for items in sizes:
        again(items)
    return _interleaved(sizes, turns, again)


def _interleaved(sizes: list[int], turns: int, turn: Callable[[int], float]) -> dict[int, float]:
    """The median for each size, whose turns take turns: what disturbs the machine disturbs all of them."""
    took: dict[int, list[float]] = {items: [] for items in sizes}
    for _ in range(turns):
        for items in sizes:
            took[items].append(turn(items))
    return {items: statistics.median(times) for items, times in took.items()}


def longest_wait(client: httpx.Client, during: threading.Event) -> float:
    """The longest that /health took until told to stop."""
    worst = 0.0
    while not during.is_set():
        begin = time.perf_counter()
        client.get("/health").raise_for_status()
        worst = max(worst, time.perf_counter() - begin)
        time.sleep(0.005)
    return worst


def changed(client: httpx.Client, items: int) -> tuple[float, float]:
    """Seconds of a turn with other tools on a session of so many items, and the longest wait of /health meanwhile."""
    fill(client, "changed", items)
    say = [{"role": "user", "content": "And now?"}]
    ask(client, session_id="changed", messages=say, tools=[])
    took = 0.0
    over = threading.Event()

    def change() -> None:
        nonlocal took
        with httpx.Client(base_url=client.base_url, timeout=600.0) as other:
            took = ask(other, session_id="changed", messages=say, tools=[TOOL])
        over.set()

    thread = threading.Thread(target=change)
    thread.start()
    worst = longest_wait(client, over)
    thread.join()
    return took, worst


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--changed", type=int, default=2000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as client:
        for items, took in appended(client, chosen.items, chosen.turns).items():
            print(f"append one message to {items:6} items: {1000 * took:8.1f} ms")
        for items, took in repeated(client, chosen.items, chosen.turns).items():
            print(f"repeat a history of    {items:6} items: {1000 * took:8.1f} ms")
        whole, worst = changed(client, chosen.changed)
        print(f"change the tools of    {chosen.changed:6} items: {1000 * whole:8.1f} ms, /health {1000 * worst:.0f} ms")


if __name__ == "__main__":
    main()
