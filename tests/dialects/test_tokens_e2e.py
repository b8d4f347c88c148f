"""Tokens told beforehand are those that a turn then sends."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("more", [{}, {"tools": []}])
def test_a_chat_has_the_tokens_that_were_told(http: httpx.Client, more: dict[str, Any]) -> None:
    session = f"told-{len(more)}"
    for text in ("one", "two"):  # the second turn is told and asked within the session
        body = {"messages": [{"role": "user", "content": text}], "session_id": session, **more}
        told = http.post("/tokenize", json=body).json()["tokens"]
        count = http.post("/v1/chat/completions/input_tokens", json=body).json()
        assert count == {"object": "response.input_tokens", "input_tokens": len(told)}
        answer = http.post("/v1/chat/completions", json=body).json()
        assert answer["usage"]["tenuto"]["rounds"][0]["prompt_tokens"] == len(told)


def test_a_text_has_the_tokens_of_a_prompt_if_what_comes_before_one_is_asked_for(http: httpx.Client) -> None:
    told = http.post("/tokenize", json={"content": "abc", "add_special": True}).json()["tokens"]
    answer = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == len(told)
    assert http.post("/tokenize", json={"prompt": "abc", "add_special": False}).json()["tokens"] == told[-3:]


def test_control_tokens_are_not_read_from_a_text(http: httpx.Client) -> None:
    asked = {"content": "<|end|>", "parse_special": True}
    refused = http.post("/tokenize", json=asked)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "parse_special")
    assert http.post("/tokenize", json=asked | {"parse_special": False}).status_code == 200


def test_a_chat_is_shown_as_the_model_would_read_it(http: httpx.Client) -> None:
    session = {"session_id": "shown"}
    for text in ("one <|end|>", "two"):
        body = {"messages": [{"role": "user", "content": text}], "tools": [], **session}
        prompt = http.post("/apply-template", json=body).json()["prompt"]
        tokens = http.post("/tokenize", json=body).json()["tokens"]
        assert {"content": prompt} == http.post("/detokenize", json={"tokens": tokens}).json()
        assert text in prompt
        http.post("/v1/chat/completions", json=body).raise_for_status()
    assert "one <|end|>" in prompt
    refused = http.post("/apply-template", json={"messages": []})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


def test_telling_tokens_makes_no_session(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "session_id": "only-told"}
    assert http.post("/tokenize", json=body).status_code == 200
    assert http.get("/v1/sessions/only-told").status_code == 404


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_detokenising_gives_the_text_back(http: httpx.Client, text: str) -> None:
    tokens = http.post("/tokenize", json={"content": text}).json()["tokens"]
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"content": text}
    pieces = http.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    data = b"".join(bytes(p) if isinstance(p := one["piece"], list) else p.encode() for one in pieces)
    assert data.decode() == text


def test_a_long_text_has_all_its_tokens_though_they_come_in_pages(http: httpx.Client) -> None:
    text = "some words " * 3000
    told = http.post("/tokenize", json={"content": text})
    assert told.headers["content-type"] == "application/json"
    tokens = told.json()["tokens"]
    assert len(tokens) > 3 * 4096
    pieces = http.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    assert [one["id"] for one in pieces] == tokens
    assert "".join(one["piece"] for one in pieces) == text
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"content": text}
