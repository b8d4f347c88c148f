"""Each field that a page says is ignored changes nothing, and each that it says is refused is refused by its name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tenuto.errors import UnsupportedParameter
from tenuto.runtime.dialects.anthropic.messages import fields as messages
from tenuto.runtime.dialects.anthropic.messages.request import read_message
from tenuto.runtime.dialects.ollama import fields as ollama
from tenuto.runtime.dialects.ollama.request import read_chat as read_ollama_chat
from tenuto.runtime.dialects.ollama.request import read_generate
from tenuto.runtime.dialects.openai.chat import fields as chat
from tenuto.runtime.dialects.openai.chat.request import read_chat
from tenuto.runtime.dialects.openai.completions import wire as completions
from tenuto.runtime.dialects.openai.embeddings import wire as embeddings
from tenuto.runtime.dialects.openai.native_completions import wire as native
from tenuto.runtime.dialects.openai.responses import fields as responses
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, read_responses
from tenuto.runtime.dialects.refusals import Refusal
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.principal import LOCAL

VALUES: tuple[Any, ...] = ("text", 3, True, False, {"type": "x"}, [{"type": "x"}], ["text", "audio"])
"""One of them counts as really using any field."""
HELLO = {"role": "user", "content": "hello"}


@dataclass(frozen=True)
class Reader:
    """How one kind of request is read, and a request of that kind."""

    read: Callable[[bytes], Any]
    body: Mapping[str, Any]

    def __call__(self, **more: Any) -> Any:
        return self.read(json.dumps({**self.body, **more}).encode())


def response_turn(body: bytes) -> Turn:
    found = read_responses(body, {}, principal=LOCAL, listed={})
    assert isinstance(found, ResponseRequest)
    return found.turn


CHAT = Reader(lambda body: read_chat(body, {}, principal=LOCAL), {"messages": [HELLO]})
RESPONSES = Reader(response_turn, {"input": "hello"})
MESSAGES = Reader(lambda body: read_message(body, {}, principal=LOCAL), {"max_tokens": 9, "messages": [HELLO]})
OLLAMA_CHAT = Reader(lambda body: read_ollama_chat(body, {}, principal=LOCAL), {"messages": [HELLO]})
GENERATE = Reader(lambda body: read_generate(body, {}, principal=LOCAL), {"prompt": "hello"})


def pairs(*tables: tuple[Reader, Mapping[str, Any]]) -> list[tuple[Reader, str]]:
    return [(reader, name) for reader, table in tables for name in table]


@pytest.mark.parametrize(
    ("reader", "name"),
    pairs(
        (CHAT, chat.IGNORED),
        (RESPONSES, responses.IGNORED),
        (MESSAGES, messages.IGNORED),
        (OLLAMA_CHAT, ollama.CHAT_IGNORED),
        (GENERATE, ollama.GENERATE_IGNORED),
    ),
)
def test_what_is_ignored_changes_nothing_whatever_it_is(reader: Reader, name: str) -> None:
    assert [reader(**{name: value}) for value in VALUES] == [reader()] * len(VALUES)


@pytest.mark.parametrize("name", ollama.OPTIONS_IGNORED)
def test_an_option_that_is_ignored_changes_nothing(name: str) -> None:
    assert OLLAMA_CHAT(options={name: 3}) == OLLAMA_CHAT(options={name: True}) == OLLAMA_CHAT()


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        *(("/v1/completions", {"prompt": "abc", "seed": 1}, name) for name in completions.IGNORED),
        *(("/v1/embeddings", {"input": "blue"}, name) for name in embeddings.IGNORED),
        *(("/api/embed", {"input": "blue"}, name) for name in ollama.EMBED_IGNORED),
    ],
)
def test_what_is_ignored_does_not_change_an_answer(
    http: httpx.Client, path: str, body: dict[str, Any], name: str
) -> None:
    plain, with_it = (http.post(path, json={**body, **more}) for more in ({}, {name: {"type": "x"}}))
    assert (plain.status_code, with_it.status_code) == (200, 200)
    for part in ("data", "embeddings"):
        assert plain.json().get(part) == with_it.json().get(part)
    assert [one["text"] for one in plain.json().get("choices", ())] == [
        one["text"] for one in with_it.json().get("choices", ())
    ]


@pytest.mark.parametrize(
    ("reader", "refused", "name"),
    [
        *((CHAT, chat.REFUSED, name) for name in chat.REFUSED),
        *((RESPONSES, responses.REFUSED, name) for name in responses.REFUSED),
        *((MESSAGES, messages.REFUSED, name) for name in messages.REFUSED),
        *((GENERATE, ollama.GENERATE_REFUSED, name) for name in ollama.GENERATE_REFUSED),
    ],
)
def test_what_is_refused_is_named(reader: Reader, refused: Mapping[str, Refusal], name: str) -> None:
    used = [value for value in VALUES if refused[name].is_used(value)]
    assert used
    for value in used:
        with pytest.raises(UnsupportedParameter) as raised:
            reader(**{name: value})
        assert raised.value.param == name


@pytest.mark.parametrize(
    ("path", "body", "refused", "name"),
    [
        *(("/v1/completions", {"prompt": "abc"}, completions.REFUSED, name) for name in completions.REFUSED),
        *(("/completion", {"prompt": "abc"}, native.REFUSED, name) for name in native.REFUSED),
        *(("/v1/embeddings", {"input": "blue"}, embeddings.REFUSED, name) for name in embeddings.REFUSED),
    ],
)
def test_what_is_refused_is_named_in_the_answer(
    http: httpx.Client, path: str, body: dict[str, Any], refused: Mapping[str, Refusal], name: str
) -> None:
    value = next(value for value in VALUES if refused[name].is_used(value))
    answer = http.post(path, json={**body, name: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert refused[name].words in error["message"]
