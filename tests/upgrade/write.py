"""Writes a data folder with a version of Tenuto, as `COMMIT.sql` and what that version says of it, as `COMMIT.json`.

Run it with that version on the path, from any folder:

    git worktree add /tmp/old COMMIT
    PYTHONPATH=/tmp/old python tests/upgrade/write.py COMMIT
    git worktree remove /tmp/old

The server is killed in the middle of an answer, and what waits in it waits for a hundred years.
"""

import hashlib
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
from mcp import Client

from tests.e2e.server import Server, script

A_CENTURY_S = 100 * 365 * 24 * 3600.0
RULES: list[dict[str, Any]] = [
    {"user": "add", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "20 + 22"}}]},
    {"user": "note", "calls": [{"name": "notes__put", "arguments": {"key": "colour", "text": "blue é"}}]},
    {"user": "recall", "calls": [{"name": "notes__get", "arguments": {"key": "colour"}}]},
    {"user": "weather", "calls": [{"name": "weather", "arguments": {"city": "Rome"}}], "reasoning": "I should look."},
    {"user": "wait", "text": "never said", "delay_ms": 60_000},
    {"tool_contains": "", "text": "the result: ${tool}"},
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


CALCULATOR = [{"type": "mcp", "server_label": "calculator"}]


def ask(client: httpx.Client, *said: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    answer = client.post("/v1/chat/completions", json={"messages": messages, **fields})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    return client.get(path, params=query).raise_for_status().json()


def shown(document: dict[str, Any]) -> dict[str, Any]:
    """A session's document with a digest of each ledger's tokens instead of these."""
    ledgers = {
        one["fingerprint"]: [len(one["spans"]), hashlib.sha256(json.dumps(one["spans"]).encode()).hexdigest()]
        for one in document["ledgers"]
    }
    return {**document, "ledgers": ledgers}


async def note_outside_of_sessions(server: Server) -> None:
    async with Client(f"{server.url}/mcp") as client:
        await client.call_tool("notes__put", {"key": "outside", "text": "green"})


def wait_until_generating(client: httpx.Client, run_ids: set[str], folder: Path) -> str:
    """The one run that is none of these, as soon as it is committed."""
    while True:
        with closing(sqlite3.connect(folder / "sessions.db")) as connection:
            rows = {row[0] for row in connection.execute("SELECT id FROM runs")} - run_ids
        if rows:
            (run_id,) = rows
            assert get(client, f"/v1/runs/{run_id}")["status"] == "running"
            return str(run_id)
        time.sleep(0.05)


def write(server: Server) -> dict[str, Any]:
    """Let the server have sessions of every kind; what it says of them."""
    with server.client() as client:
        asked = {
            "tool": ask(client, "add", session_id="tools"),
            "further": ask(client, "add", session_id="tools"),
            "note": ask(client, "note", session_id="notes"),
            "denied": ask(client, "add", session_id="denied", agent_permission="deny", tools=CALCULATOR),
            "implicit": ask(client, "hello", "hello", "add", tools=CALCULATOR),
            "remembered": ask(client, "add", session_id="remembered", agent_permission="ask", tools=CALCULATOR),
            "approval": ask(client, "add", session_id="approval", agent_permission="ask", tools=CALCULATOR),
            "client": ask(client, "weather", session_id="client", tools=[WEATHER]),
        }
        approval = f"/v1/agent/approvals/{asked['remembered']['tenuto']['approval_id']}"
        client.post(approval, json={"decision": "approve", "remember_for_session": True}).raise_for_status()
        client.post("/v1/sessions/tools/fork", json={"id": "fork"}).raise_for_status()
        anyio.run(note_outside_of_sessions, server)
        runs = {name: answer["tenuto"]["run_id"] for name, answer in asked.items()}
        while get(client, f"/v1/runs/{runs['remembered']}")["status"] != "completed":
            time.sleep(0.05)
        with suppress(httpx.ReadTimeout), server.client() as other:
            other.timeout = httpx.Timeout(5, read=0.5)
            body = {
                "messages": [{"role": "user", "content": "wait"}],
                "session_id": "generating",
                "stream": True,
                "tools": [],
            }
            with other.stream("POST", "/v1/chat/completions", json=body):
                runs["generating"] = wait_until_generating(client, set(runs.values()), server.data_dir)
                listed = get(client, "/v1/sessions", implicit=1)["data"]
                told = {
                    "rules": RULES,
                    "pauses": {"approval": asked["approval"]["tenuto"]["approval_id"]},
                    "calls": asked["client"]["choices"][0]["message"]["tool_calls"],
                    "implicit": asked["implicit"]["session_id"],
                    "sessions": {one["id"]: shown(get(client, f"/v1/sessions/{one['id']}")) for one in listed},
                    "runs": {name: get(client, f"/v1/runs/{run_id}") for name, run_id in runs.items()},
                }
                server.kill()
                return told
    raise AssertionError("the server was not killed")


def dump(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = {
            f"TENUTO_{setting}": str(A_CENTURY_S)
            for setting in ("APPROVAL_EXPIRES_S", "CLIENT_TOOL_EXPIRES_S", "IMPLICIT_SESSION_S")
        }
        server = Server(folder, script(folder / "model.json", RULES), variables=variables)
        try:
            told = write(server.start())
        finally:
            server.close()
        out = Path(__file__).with_name(commit)
        out.with_suffix(".json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        out.with_suffix(".sql").write_text(dump(server.data_dir / "sessions.db"))


if __name__ == "__main__":
    main(sys.argv[1])
