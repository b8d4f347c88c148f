"""How urgent a request is, in the words of each dialect."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.anthropic.messages.request import read_message
from tenuto.runtime.dialects.openai.chat.request import read_chat
from tenuto.runtime.dialects.openai.completions.wire import CompletionBody
from tenuto.runtime.dialects.openai.responses.request import ResponseRequest, read_responses
from tenuto.runtime.dialects.priorities import priority_of
from tenuto.runtime.http.body import validate
from tenuto.sessions.principal import LOCAL
from tenuto.sessions.priority import Priority

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> Priority | None:
    return read_chat(json.dumps({"messages": HELLO, **fields}).encode(), {}, principal=LOCAL).turn.priority


def response(**fields: Any) -> Priority | None:
    return asked(**fields).turn.priority


def asked(**fields: Any) -> ResponseRequest:
    read = read_responses(json.dumps({"input": "hello", **fields}).encode(), {}, principal=LOCAL, listed={})
    assert isinstance(read, ResponseRequest)
    return read


def text(**fields: Any) -> Priority | None:
    wire = validate(CompletionBody, {"prompt": "hello", **fields})
    return priority_of(wire.service_tier, wire.priority)


def message(**fields: Any) -> Priority | None:
    body = {"max_tokens": 9, "messages": HELLO, **fields}
    return read_message(json.dumps(body).encode(), {}, principal=LOCAL).turn.priority


Reads = Callable[..., Priority | None]


@pytest.mark.parametrize("reads", [chat, response, text])
@pytest.mark.parametrize(
    ("tier", "priority"),
    [
        (None, None),
        ("auto", None),
        ("default", INTERACTIVE),
        ("priority", INTERACTIVE),
        ("scale", INTERACTIVE),
        ("flex", BACKGROUND),
    ],
)
def test_openais_service_tiers(reads: Reads, tier: str | None, priority: Priority | None) -> None:
    assert reads(service_tier=tier) is priority


@pytest.mark.parametrize("reads", [chat, response, text, message])
@pytest.mark.parametrize(
    ("said", "priority"),
    [
        (None, None),
        ("interactive", INTERACTIVE),
        ("background", BACKGROUND),
        (0, INTERACTIVE),
        (-5, INTERACTIVE),
        (1, BACKGROUND),
    ],
)
def test_a_word_or_a_number_as_vllm_has_it(reads: Reads, said: str | int | None, priority: Priority | None) -> None:
    assert reads(priority=said) is priority


@pytest.mark.parametrize("reads", [chat, response, text, message])
@pytest.mark.parametrize("wrong", [{"priority": "soon"}, {"priority": 1.5}, {"priority": True}, {"service_tier": "x"}])
def test_what_is_neither_is_refused_by_its_name(reads: Reads, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        reads(**wrong)
    assert str(refused.value.param).split(".")[0] == next(iter(wrong))


@pytest.mark.parametrize("reads", [chat, response, text])
def test_two_that_contradict_each_other_are_refused(reads: Reads) -> None:
    assert reads(service_tier="flex", priority="background") is BACKGROUND
    with pytest.raises(InvalidRequest, match="differ"):
        reads(service_tier="flex", priority=0)


@pytest.mark.parametrize("tier", ["auto", "standard_only"])
def test_anthropics_service_tiers_are_one_here(tier: str) -> None:
    assert message(service_tier=tier) is None


def test_a_response_tells_the_tier_that_it_was_served_with() -> None:
    assert asked(service_tier="flex").asked.is_flex
    assert not asked(background=True).asked.is_flex
