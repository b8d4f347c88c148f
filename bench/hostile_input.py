"""What hostile requests cost the others: for each, the longest that /health takes meanwhile, and the answer.

    python bench/hostile_input.py [--model embedded] [--only NAME] [--goal-ms 250]

A server of its own, on loopback without a key. /health is asked from a process of its own, every 5 ms, so that this
program's own work is not in the figures. Exit status 1 where one goes beyond the goal.
"""

import argparse
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

READY = "tenuto ready on "
QUIET_S = 0.5
PATIENCE_S = 180.0
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Case:
    """A request: method, path and body; `before` are requests that are not measured."""

    name: str
    method: str
    path: str
    body: Callable[[], bytes]
    before: tuple[tuple[str, str, Callable[[], bytes]], ...] = ()


def chat(**more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, **more}).encode()


def tools(*parameters: Any, description: str = "", strict: bool = True) -> list[dict[str, Any]]:
    common = {"description": description, "strict": strict}
    functions = [{"name": f"f{n}", "parameters": schema, **common} for n, schema in enumerate(parameters)]
    return [{"type": "function", "function": function} for function in functions]


def properties(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"property_{n}": {"type": "string"} for n in range(number)}}


def alternatives(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"anyOf": [{"const": f"value {n}"} for n in range(number)]}}}


def doubling(levels: int) -> dict[str, Any]:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    defs = {**twice, f"d{levels}": {"type": "string"}}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def response(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def document(items: int) -> bytes:
    item = {"kind": "user", "text": "hello", "attachments": []}
    return json.dumps({"version": 1, "created_at": 0, "updated_at": 0, "items": [item] * items}).encode()


def messages(number: int, content: str = "") -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}] * number


def talk(number: int) -> list[dict[str, Any]]:
    said = [{"role": ("user", "assistant")[n % 2], "content": f"word {n}"} for n in range(number)]
    return [*said, *messages(1, "hello")]


def mcp_call(name: str, arguments: Any) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return json.dumps(call).encode()


CASES = [
    Case("a small question", "POST", CHAT, chat),
    Case("2,000 properties, honest", "POST", CHAT, lambda: chat(tools=tools(properties(2000)))),
    Case("100 tools of 20 properties, honest", "POST", CHAT, lambda: chat(tools=tools(*[properties(20)] * 100))),
    Case("10,000 properties", "POST", CHAT, lambda: chat(tools=tools(properties(10_000)))),
    Case("response_format of 2,000 properties", "POST", CHAT, lambda: chat(response_format=response(properties(2000)))),
    Case(
        "response_format of 10,000 properties", "POST", CHAT, lambda: chat(response_format=response(properties(10_000)))
    ),
    Case("anyOf of 5,000", "POST", CHAT, lambda: chat(tools=tools(alternatives(5000)))),
    Case("anyOf of 2,000", "POST", CHAT, lambda: chat(tools=tools(alternatives(2000)))),
    Case("28 levels of allOf: [$ref, $ref]", "POST", CHAT, lambda: chat(tools=tools(doubling(28)))),
    Case('"$schema": []', "POST", CHAT, lambda: chat(tools=tools({"type": "object", "$schema": []}))),
    Case(
        "a pattern that goes back",
        "POST",
        CHAT,
        lambda: chat(tools=tools({"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}})),
    ),
    Case(
        "a schema of 15 MB",
        "POST",
        CHAT,
        lambda: chat(tools=tools({"type": "object", "description": "x" * (15 << 20)})),
    ),
    Case("1,000 tools of 100 properties", "POST", CHAT, lambda: chat(tools=tools(*[properties(100)] * 1000))),
    Case("50,000 empty messages", "POST", CHAT, lambda: chat(messages=messages(50_000))),
    Case("20,000 empty messages", "POST", CHAT, lambda: chat(messages=messages(20_000))),
    Case("10,000 turns of history", "POST", CHAT, lambda: chat(messages=talk(10_000))),
    Case(
        "a description of 13 MB",
        "POST",
        CHAT,
        lambda: chat(tools=tools({"type": "object"}, description="word " * (10 << 18))),
    ),
    Case(
        "a description of 60 KB",
        "POST",
        CHAT,
        lambda: chat(tools=tools({"type": "object"}, description="word " * 12_000)),
    ),
    Case("a message of 15 MB", "POST", CHAT, lambda: chat(messages=messages(1, "word " * (3 << 20)))),
    Case("16 MB of numbers", "POST", CHAT, lambda: b'{"x":[' + b"0," * 8_000_000 + b"0]}"),
    Case("16 MB of empty objects", "POST", CHAT, lambda: b'{"x":[' + b"{}," * 5_000_000 + b"0]}"),
    Case("16 MB of empty strings", "POST", CHAT, lambda: b'{"x":[' + b'"",' * 5_000_000 + b"0]}"),
    Case("16 MB of keys", "POST", CHAT, lambda: b"{" + b",".join(b'"%d":0' % n for n in range(1_500_000)) + b"}"),
    Case("nested 200,000 deep", "POST", CHAT, lambda: b'{"x":' + b"[" * 200_000),
    Case("import of 150,000 items", "PUT", "/v1/sessions/large", lambda: document(150_000)),
    Case("import of 20,000 items", "PUT", "/v1/sessions/medium", lambda: document(20_000)),
    Case("export of 20,000 items", "GET", "/v1/sessions/medium", lambda: b""),
    Case("an append to 20,000 items", "POST", CHAT, lambda: chat(session_id="medium")),
    Case(
        "a change of tools on 2,000 items",
        "POST",
        CHAT,
        lambda: chat(session_id="talk", tools=tools(properties(3))),
        (("PUT", "/v1/sessions/talk", lambda: document(2000)), ("POST", CHAT, lambda: chat(session_id="talk"))),
    ),
    Case("/tokenize of 15 MB", "POST", "/tokenize", lambda: json.dumps({"content": "word " * (3 << 20)}).encode()),
    Case(
        "/tokenize of 2 MB with pieces",
        "POST",
        "/tokenize",
        lambda: json.dumps({"content": "word " * 400_000, "with_pieces": True}).encode(),
    ),
    Case(
        "/v1/completions of 15 MB",
        "POST",
        "/v1/completions",
        lambda: json.dumps({"prompt": "word " * (3 << 20), "max_tokens": 1}).encode(),
    ),
    Case(
        "a call over MCP with 5,000,000 values",
        "POST",
        "/mcp",
        lambda: mcp_call("chat", {"messages": [{}] * 5_000_000}),
    ),
]


@contextmanager
def server(model: str) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tenuto",
            "serve",
            "--port",
            "0",
            "--data-dir",
            f"{folder}/data",
            "--model",
            model,
        ]
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith(READY), Path(folder, "log").read_text()
                yield line.removeprefix(READY).strip(), process.pid
            finally:
                process.terminate()
                process.wait(60)
                tail = [
                    text
                    for text in Path(folder, "log").read_text().splitlines()
                    if "ERROR" in text or "Traceback" in text
                ]
                if tail:
                    print("\nthe server's log:", *tail[-20:], sep="\n")


def watch(url: str, told: Connection) -> None:
    """Ask /health until told to stop; then tell the longest wait."""
    longest = 0.0
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        client.get("/health")
        told.send("ready")
        while not told.poll(0.005):
            begun = time.perf_counter()
            client.get("/health")
            longest = max(longest, time.perf_counter() - begun)
    told.send(longest)


def ask(url: str, method: str, path: str, body: bytes) -> tuple[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        answer = client.request(method, path, content=body, headers=headers if body else {})
    try:
        error = answer.json()["error"]
        said = error["message"]
    except (ValueError, KeyError, TypeError):
        said = f"{len(answer.content)} bytes"
    return str(answer.status_code), said


def measured(url: str, case: Case) -> tuple[float, float, str, str]:
    for method, path, make in case.before:
        ask(url, method, path, make())
    body = case.body()
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(url, theirs), daemon=True)
    watcher.start()
    ours.recv()
    begun = time.perf_counter()
    try:
        status, said = ask(url, case.method, case.path, body)
    except httpx.HTTPError as exc:
        status, said = "-", repr(exc)
    took = time.perf_counter() - begun
    time.sleep(QUIET_S)
    ours.send("stop")
    longest: float = ours.recv()
    watcher.join()
    return longest, took, status, said


def flood(url: str) -> tuple[float, str]:
    """100 MB of headers on one connection."""
    address = urlsplit(url)
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(url, theirs), daemon=True)
    watcher.start()
    ours.recv()
    received = b""
    with socket.create_connection((address.hostname or "", address.port or 0)) as client:
        try:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            for _ in range(100):
                client.sendall(b"X-Header: " + b"x" * (1 << 20))
            received = client.recv(65536)
        except OSError:
            try:
                received = client.recv(65536)
            except OSError as exc:
                received = repr(exc).encode()
    ours.send("stop")
    longest: float = ours.recv()
    watcher.join()
    return longest, received.partition(b"\r\n")[0].decode()


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--model", default="embedded")
    options.add_argument("--only", default="")
    options.add_argument("--goal-ms", type=float, default=250)
    given = options.parse_args()
    worst = 0.0
    with server(given.model) as (url, pid):
        print(f"{'request':40} {'/health ms':>10} {'took s':>7} {'RSS MB':>7}  answer")
        for case in CASES:
            if given.only not in case.name:
                continue
            longest, took, status, said = measured(url, case)
            worst = max(worst, longest)
            print(
                f"{case.name:40} {longest * 1000:10.0f} {took:7.2f} {resident(pid):7}  {status} {said[:150]}",
                flush=True,
            )
        if given.only in "100 MB of headers":
            longest, said = flood(url)
            worst = max(worst, longest)
            print(f"{'100 MB of headers':40} {longest * 1000:10.0f} {'':7} {resident(pid):7}  {said}")
        if given.only in "40 refused schemas of 15 MB":
            before = resident(pid)
            for n in range(40):
                ask(url, "POST", CHAT, chat(tools=tools({"type": "object", "description": f"{n}" + "x" * (15 << 20)})))
            print(f"{'40 refused schemas of 15 MB':40} {'':10} {'':7} {resident(pid):7}  {resident(pid) - before:+} MB")
    print(f"\nthe longest wait of /health: {worst * 1000:.0f} ms; the goal is {given.goal_ms:g} ms")
    sys.exit(worst * 1000 > given.goal_ms)


if __name__ == "__main__":
    main()
