"""Several texts for one request hold what they need together, and nothing when it is over."""

import time
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

SLOW = [258, *b"slow", 261, 259]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "slow"}], "tools": [], "n": 4}),
    "text": ("/v1/completions", {"prompt": [SLOW, SLOW], "n": 2, "max_tokens": 400}),
}
RULES = [{"user": "slow", "text": "tick " * 400, "delay_ms": 20}]


SERVERS_OWN = 1
"""The sequence that the server has had read when it loaded the model."""


def sequences(http: httpx.Client) -> dict[str, float]:
    """How many sequences there are in each state."""
    lines = [line for line in http.get("/metrics").text.split("\n") if line.startswith("tenuto_sequences{")]
    return {line.split('state="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


def wait_for(http: httpx.Client, **wanted: float) -> None:
    deadline = time.monotonic() + HANGS_S
    while (now := {state: sequences(http)[state] for state in wanted}) != wanted:
        assert time.monotonic() < deadline, f"{now} never became {wanted}"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", REQUESTS)
def test_all_streamed_texts_end_and_are_freed_when_the_client_goes(start: Any, kind: str) -> None:
    server: Server = start(rules=RULES, slots=8)
    path, body = REQUESTS[kind]
    with server.client() as watcher:
        with server.client() as leaving, leaving.stream("POST", path, json=body | {"stream": True}) as response:
            assert response.status_code == 200
            wait_for(watcher, decoding=4)
        _is_at_rest(watcher)


@pytest.mark.parametrize("kind", REQUESTS)
def test_all_whole_texts_end_and_are_freed_when_the_client_goes(start: Any, kind: str) -> None:
    server: Server = start(rules=RULES, slots=8)
    path, body = REQUESTS[kind]
    with server.client() as watcher:
        with server.client() as leaving, pytest.raises(httpx.ReadTimeout):
            leaving.post(path, json=body, timeout=0.5)
        _is_at_rest(watcher)


def _is_at_rest(http: httpx.Client) -> None:
    wait_for(http, waiting=0, prefilling=0, decoding=0, paused=SERVERS_OWN)
    assert http.get("/v1/sessions", params={"implicit": 1}).json()["data"] == []


def test_what_was_answered_several_times_is_kept_nowhere(start: Any) -> None:
    server: Server = start(slots=8)
    with server.client() as http:
        path, body = "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "n": 5}
        for stream in (False, True):
            assert http.post(path, json=body | {"stream": stream}).status_code == 200
            _is_at_rest(http)
