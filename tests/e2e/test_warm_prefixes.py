"""Beginnings that are named at the start: the first request that has one finds it computed."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

SYSTEM = "You are the clerk of the harbour. Every ship has a berth, every berth has a number, and you know them all."
TOOL = {
    "type": "function",
    "function": {
        "name": "berth_of",
        "description": "Says where a ship lies",
        "parameters": {"type": "object", "properties": {"ship": {"type": "string"}}},
    },
}
ENTRY: dict[str, Any] = {"name": "clerk", "messages": [{"role": "system", "content": SYSTEM}], "tools": [TOOL]}
SAID = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Where is the Anna?"}]
KEYS = [word for key in "abcde" for word in ("--keys", json.dumps({"key": key, "name": f"user-{key}"}))]

Begin = Callable[..., Server]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    running: list[Server] = []

    def started(prefixes: Any, *arguments: str, model: str | None = None, **settings: Any) -> Server:
        file = tmp_path / "warm.json"
        file.write_text(prefixes if isinstance(prefixes, str) else json.dumps(prefixes))
        model = model or script(tmp_path / "script.json", [{"text": "ok"}], **settings)
        server = Server(tmp_path, model, ("--warm", str(file), *arguments))
        running.append(server)
        return server.start()

    yield started
    for server in running:
        server.close()


def ask(server: Server, messages: Sequence[Any] = SAID, key: str = "a", **more: Any) -> dict[str, Any]:
    body = {"messages": messages, "tools": [TOOL], "max_tokens": 4, "temperature": 0, **more}
    with server.client(headers={"Authorization": f"Bearer {key}"}) as client:
        answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def usage(server: Server, *arguments: Any, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = ask(server, *arguments, **more)["usage"]["tenuto"]
    return told


def is_counted(server: Server, state: str, count: int) -> bool:
    with server.client(headers={"Authorization": "Bearer a"}) as client:
        return f'tenuto_warm_prefixes{{state="{state}"}} {count}.0' in client.get("/metrics").text


def until_counted(server: Server, state: str, count: int) -> None:
    deadline = time.monotonic() + HANGS_S
    while not is_counted(server, state, count):
        assert time.monotonic() < deadline, f"there are not {count} that are {state}"
        time.sleep(0.02)


def test_the_first_request_finds_the_system_prompt_and_the_tools_computed(begin: Begin) -> None:
    server = begin([ENTRY])
    assert is_counted(server, "ready", 1), "the start has waited for it"
    told = usage(server)
    assert told["cached_tokens"] > len(SYSTEM)
    assert told["computed_tokens"] < 60, "what the user says, and what opens the turns"


def test_it_serves_whoever_sends_all_of_it_and_tells_nobody_of_a_part(begin: Begin) -> None:
    server = begin([ENTRY], *KEYS)
    for key in "ab":
        assert usage(server, key=key, store=False)["cached_tokens"] > len(SYSTEM)
    for key, guess in zip("cde", (SYSTEM[:-1], SYSTEM + "!", SYSTEM[:-5] + "others"), strict=True):
        assert usage(server, [{"role": "system", "content": guess}, SAID[1]], key=key)["cached_tokens"] == 0


def test_one_that_belongs_to_a_principal_serves_no_other(begin: Begin) -> None:
    server = begin([{**ENTRY, "principals": ["user-a"]}], *KEYS)
    assert usage(server, key="b")["cached_tokens"] == 0
    assert usage(server, key="a")["cached_tokens"] > len(SYSTEM)


def test_answers_are_the_same_with_and_without(begin: Begin, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": "What is 2 + 2?"}]
    entry = {"name": "brief", "messages": messages[:1], "tools": [TOOL]}
    warm = begin([entry], "--context", "2048", model="embedded:gguf")
    told = ask(warm, messages, max_tokens=24)
    assert told["usage"]["tenuto"]["cached_tokens"] > 20
    warm.close()
    cold = begin([], "--context", "2048", model="embedded:gguf")
    again = ask(cold, messages, max_tokens=24)
    assert again["usage"]["tenuto"]["cached_tokens"] < told["usage"]["tenuto"]["cached_tokens"]
    assert again["choices"][0]["message"] == told["choices"][0]["message"]


def test_it_stays_while_others_take_the_slots(begin: Begin) -> None:
    server = begin([ENTRY], slots=1)
    for number in range(6):
        said = [{"role": "user", "content": f"{number} " * 40}]
        usage(server, said, tools=[])
        assert usage(server, session_id=f"s{number}")["cached_tokens"] > len(SYSTEM)


def test_it_comes_back_when_its_model_is_loaded_again(begin: Begin) -> None:
    server = begin([ENTRY])
    with server.client() as client:
        client.post("/v1/models/script/unload").raise_for_status()
        until_counted(server, "waiting", 1)
        client.post("/v1/models/script/load").raise_for_status()
    until_counted(server, "ready", 1)
    assert usage(server)["cached_tokens"] > len(SYSTEM)


def test_it_loads_no_model_that_nobody_has_asked_for(begin: Begin) -> None:
    server = begin([ENTRY], "--load", "request")
    assert is_counted(server, "waiting", 1)
    with server.client() as client:
        assert client.get("/v1/models").json()["data"][0]["state"] == "available"


def test_a_broken_file_ends_the_start_and_names_what_is_wrong(begin: Begin) -> None:
    with pytest.raises(AssertionError, match=r"warm.json: prefix 0 \('clerk'\): messages\[0\].content"):
        begin([{**ENTRY, "messages": [{"role": "system", "content": 7}]}])


def test_a_prefix_of_a_model_that_is_not_served_ends_the_start(begin: Begin) -> None:
    with pytest.raises(AssertionError, match=r"prefix 'clerk': model: .*gpt-9"):
        begin([{**ENTRY, "model": "gpt-9"}], "--strict-model-names")
