"""kill -9 at random moments of a loaded server: what was acknowledged is there, and no effect happens twice.

Acknowledged: a turn's answer, or a pause, was received whole. The server, its store, its MCP server and its clients
are real; only the model is a script.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.faults.kill_nine import kill
from tests.patience import HANGS_S

CLIENTS = 6
RULES = [
    {"user_matches": r"^write (?P<word>\w+)$", "calls": [{"name": "book__write", "arguments": {"word": "${word}"}}]},
    {"user_matches": r"^yours (?P<word>\w+)$", "calls": [{"name": "mine", "arguments": {"word": "${word}"}}]},
    {"tool_contains": "", "text": "told: ${tool}"},
]
MINE = {
    "type": "function",
    "function": {
        "name": "mine",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
BOOK = {"type": "mcp", "server_label": "book"}


@dataclass
class Waiting:
    """A pause that was acknowledged: the run that waits, and how it is answered."""

    run_id: str
    word: str
    approval_id: str | None = None
    call_id: str | None = None


@dataclass
class Talker:
    """One client with one session: talks until the server is gone, and remembers what was acknowledged."""

    session: str
    random: random.Random
    said: list[tuple[str, str]] = field(default_factory=list)
    """Acknowledged turns: what the user said, and what came back."""
    waiting: Waiting | None = None
    turns: int = 0
    acknowledged: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for every turn and every answer to a pause."""

    def talk(self, url: str, failures: list[str]) -> None:
        try:
            with httpx.Client(base_url=url, timeout=HANGS_S) as client:
                while True:
                    self.turn(client)
                    self.acknowledged.release()
        except httpx.TransportError:
            pass  # killed: what was under way is not acknowledged
        except Exception as error:
            failures.append(f"{self.session}: {error!r}")

    def turn(self, client: httpx.Client) -> None:
        if self.waiting is not None:
            self.answer(client, self.waiting)
            return
        self.turns += 1
        word = f"{self.session}x{self.turns}x{self.random.randrange(10**9)}"
        kind = self.random.choice(["hello", "write", "yours", "ask"])
        if kind == "ask":
            body = self.say(client, f"write {word}", agent_permission="ask")
        else:
            body = self.say(client, f"{kind} {word}")
        if body is None:
            return
        calls = body["choices"][0]["message"].get("tool_calls")
        if calls:
            self.waiting = Waiting(body["tenuto"]["run_id"], word, call_id=calls[0]["id"])
        elif body["tenuto"]["status"] == "paused":
            self.waiting = Waiting(body["tenuto"]["run_id"], word, approval_id=body["tenuto"]["approval_id"])
        else:
            text = body["choices"][0]["message"]["content"]
            assert word in text, f"the answer to {word} is {text!r}"
            self.said.append((word, text))

    def answer(self, client: httpx.Client, waiting: Waiting) -> None:
        if waiting.call_id is not None:
            result = {"role": "tool", "tool_call_id": waiting.call_id, "content": f"did {waiting.word}"}
            body = self.read(client.post("/v1/chat/completions", json=self.body(messages=[result])))
            self.said.append((waiting.word, body["choices"][0]["message"]["content"]))
        else:
            decided = client.post(f"/v1/agent/approvals/{waiting.approval_id}", json={"decision": "approve"})
            assert decided.status_code == 200, decided.text
            with client.stream("GET", f"/v1/runs/{waiting.run_id}/events", params={"after": 0}) as events:
                for _ in events.iter_lines():
                    pass
            run = client.get(f"/v1/runs/{waiting.run_id}").json()
            assert run["status"] == "completed", run
            self.said.append((waiting.word, run["text"]))
        self.waiting = None

    def say(self, client: httpx.Client, text: str, **extra: Any) -> dict[str, Any] | None:
        """A user's turn; None where the session waits for an approval of which the kill kept the word from us."""
        whole = {"messages": [{"role": "user", "content": text}], **extra}
        response = client.post("/v1/chat/completions", json=self.body(**whole))
        if response.status_code == 409:
            error = response.json()["error"]
            assert error["code"] == "session_paused", response.text
            word = client.get(f"/v1/runs/{error['run_id']}").json()["pause"]["calls"][0]["arguments"]
            self.waiting = Waiting(error["run_id"], json.loads(word)["word"], approval_id=error["pause_id"])
            return None
        return self.read(response)

    def body(self, **body: Any) -> dict[str, Any]:
        return {"session_id": self.session, "tools": [BOOK, MINE], **body}

    def read(self, response: httpx.Response) -> dict[str, Any]:
        assert response.status_code == 200, response.text
        parsed: dict[str, Any] = response.json()
        return parsed

    def check(self, client: httpx.Client) -> None:
        """After a restart: all that was acknowledged is there, and the pause still waits or its answer was taken."""
        exported = client.get(f"/v1/sessions/{self.session}")
        if exported.status_code == 404:
            assert not self.said, f"session {self.session} is lost"
            assert self.waiting is None
            return
        texts = " ".join(item["text"] for item in exported.json()["items"])
        for word, answer in self.said:
            assert word in texts, f"the turn {word} of {self.session} is lost"
            assert answer in texts, f"the answer {answer!r} of {self.session} is lost"
        if self.waiting is None:
            return
        run = client.get(f"/v1/runs/{self.waiting.run_id}").json()
        if run["status"] != "paused":
            # The answer to the pause was under way when the server was killed, and had been committed.
            assert run["status"] in ("interrupted", "completed"), run
            self.waiting = None


def mcp_config(folder: Path, book: Path) -> Path:
    path = folder / "mcp.json"
    program = str(Path(__file__).with_name("effects.py"))
    entry = {**tool_server(program, str(book)), "permission": "auto"}
    path.write_text(json.dumps({"mcpServers": {"book": entry}}))
    return path


def burst(server: Server, talkers: list[Talker], kill: Callable[[], None]) -> list[str]:
    """Everybody talks; the server is killed in the middle of it."""
    failures: list[str] = []
    threads = [threading.Thread(target=talker.talk, args=(server.url, failures)) for talker in talkers]
    for thread in threads:
        thread.start()
    kill()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return failures


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.thorough)])
def test_kill_9_loses_nothing_acknowledged_and_repeats_no_effect(start: Start, tmp_path: Path, kills: int) -> None:
    """Commit points and acknowledgement."""
    chance = random.Random(20)
    book = tmp_path / "book.txt"
    book.touch()
    server = start("--mcp-config", str(mcp_config(tmp_path, book)), rules=RULES, cells=65536, slots=8)
    told = threading.Semaphore(0)
    talkers = [Talker(f"s{number}", random.Random(number), acknowledged=told) for number in range(CLIENTS)]
    waited_over_a_kill = 0
    for _ in range(kills):
        moment = threading.Event()
        while told.acquire(blocking=False):
            pass  # what was acknowledged before this burst

        def kill(
            turns: int = chance.randrange(8),
            seconds: float = chance.uniform(0, 0.05),
            moment: threading.Event = moment,
        ) -> None:
            for _ in range(turns):  # so that a slow machine is killed under load too
                assert told.acquire(timeout=HANGS_S)
            moment.wait(seconds)  # a random moment within a turn, nothing is awaited here
            server.kill()

        failures = burst(server, talkers, kill)
        assert not failures, failures
        server.start()
        waited_over_a_kill += sum(talker.waiting is not None for talker in talkers)
        with server.client() as client:
            for talker in talkers:
                talker.check(client)
        twice = {word: times for word, times in Counter(book.read_text().split()).items() if times > 1}
        assert not twice, f"effects that happened twice: {twice}"
    acknowledged = sum(len(talker.said) for talker in talkers)
    with server.client() as client:
        for talker in talkers:  # every session goes on
            if talker.waiting is not None:
                talker.answer(client, talker.waiting)
            talker.turn(client)
    assert acknowledged > kills, "the server was not loaded"
    assert waited_over_a_kill > 0, "no pause has lived through a kill"
    print(f"{kills} kills, {acknowledged} acknowledged turns, {waited_over_a_kill} pauses that waited over a kill")


@pytest.mark.slow
async def test_what_the_simulations_clients_were_told_holds_after_each_kill(tmp_path: Path) -> None:
    """The short form of `make kill-nine`."""
    wrong, answers = await kill(3, tmp_path)
    assert not wrong, wrong
    assert answers > 0
