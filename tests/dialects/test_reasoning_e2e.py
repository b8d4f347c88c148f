"""What requests say of the model's reasoning reaches its chat template, in every dialect, with the official clients."""

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

RULES: list[dict[str, Any]] = [
    {"user": "why", "reasoning": "let me see", "text": "so"},
    {"user_contains": "weather", "reasoning": "look", "calls": [{"name": "look", "arguments": {"at": "Ulm"}}]},
    {"tool_contains": "sun", "reasoning": "it shines", "text": "a hat"},
]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model whose template has the switches `enable_thinking` and `reasoning_effort`."""
    folder = tmp_path_factory.mktemp("reasoning")
    running = Server(folder, script(folder / "model.json", RULES, cells=4096, switches_reasoning=True)).start()
    yield running
    running.close()


Ask = Callable[[Server, bool | None], tuple[str, str]]
"""Asks why, with reasoning on, off or as it comes; the reasoning and the text of the answer."""


def by_chat(server: Server, thinks: bool | None) -> tuple[str, str]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        effort: Any = {None: openai.NOT_GIVEN, True: "high", False: "none"}[thinks]
        said = client.chat.completions.create(
            model="model", messages=[{"role": "user", "content": "why"}], tools=[], reasoning_effort=effort
        )
    message = said.choices[0].message
    return getattr(message, "reasoning_content", None) or "", message.content or ""


def by_template_arguments(server: Server, thinks: bool | None) -> tuple[str, str]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        body = {} if thinks is None else {"chat_template_kwargs": {"enable_thinking": thinks}}
        said = client.chat.completions.create(
            model="model", messages=[{"role": "user", "content": "why"}], tools=[], extra_body=body
        )
    message = said.choices[0].message
    return getattr(message, "reasoning_content", None) or "", message.content or ""


def by_responses(server: Server, thinks: bool | None) -> tuple[str, str]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        asked: Any = {None: openai.NOT_GIVEN, True: {"effort": "low"}, False: {"effort": "none"}}[thinks]
        said = client.responses.create(model="model", input="why", tools=[], reasoning=asked)
    thought = [part.text for item in said.output if item.type == "reasoning" for part in item.content or ()]
    return "".join(thought), said.output_text


def by_template_arguments_of_responses(server: Server, thinks: bool | None) -> tuple[str, str]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as client:
        body = {} if thinks is None else {"chat_template_kwargs": {"enable_thinking": thinks}}
        said = client.responses.create(model="model", input="why", tools=[], extra_body=body)
    thought = [part.text for item in said.output if item.type == "reasoning" for part in item.content or ()]
    return "".join(thought), said.output_text


def by_messages(server: Server, thinks: bool | None) -> tuple[str, str]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANGS_S) as client:
        # Those who do not ask for thinking are not shown it, so it is shown in any case that may have some.
        asked: Any = {"type": "disabled"} if thinks is False else {"type": "adaptive"}
        said = client.messages.create(
            model="model", max_tokens=100, messages=[{"role": "user", "content": "why"}], tools=[], thinking=asked
        )
    thought = [block.thinking for block in said.content if block.type == "thinking"]
    return "".join(thought), "".join(block.text for block in said.content if block.type == "text")


def by_ollama(server: Server, thinks: bool | None) -> tuple[str, str]:
    client = ollama.Client(server.url, timeout=HANGS_S)
    message = client.chat("model", [{"role": "user", "content": "why"}], think=thinks).message
    return message.thinking or "", message.content or ""


@pytest.mark.parametrize(
    "ask", [by_chat, by_template_arguments, by_responses, by_template_arguments_of_responses, by_messages, by_ollama]
)
def test_reasoning_is_switched_off_by_each_dialects_own_word(server: Server, ask: Ask) -> None:
    assert ask(server, None) == ask(server, True) == ("let me see", "so")
    assert ask(server, False) == ("", "so")


def chat(http: httpx.Client, text: str, session: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "tools": [], "session_id": session, **more}
    response = http.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    found: dict[str, Any] = response.json()
    return found


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["usage"]["tenuto"]
    return found


def test_what_shows_only_in_the_opening_of_a_turn_costs_nothing_of_the_past(server: Server) -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    with server.client() as http:
        chat(http, "first", "opening")
        second = chat(http, "why", "opening", **off)
        third = chat(http, "third", "opening")
    assert "reasoning_content" not in second["choices"][0]["message"]
    assert figures(second)["miss_reason"] is None
    assert figures(third)["miss_reason"] is None
    assert figures(third)["cached_tokens"] > len("first" + "first" + "why" + "so")


def test_what_shows_in_the_past_has_a_ledger_of_its_own_and_what_was_sampled_stays(server: Server) -> None:
    with server.client() as http:
        chat(http, "first", "effort")
        high = chat(http, "second", "effort", reasoning_effort="high")
        again = chat(http, "third", "effort", reasoning_effort="high")
        back = chat(http, "fourth", "effort")
        exported = http.get("/v1/sessions/effort").json()
    assert figures(high)["miss_reason"] == "template_variables_changed"
    assert figures(again)["miss_reason"] is None
    assert figures(again)["cached_tokens"] > figures(high)["cached_tokens"]
    assert figures(back)["miss_reason"] == "template_variables_changed"
    assert len(exported["ledgers"]) == 2


def test_a_run_that_waits_for_its_client_keeps_what_it_was_asked_with(server: Server) -> None:
    with server.client() as http:
        body: dict[str, Any] = {"session_id": "waits", "tools": [LOOK]}
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        asked = http.post(
            "/v1/chat/completions", json={**body, **off, "messages": [{"role": "user", "content": "the weather"}]}
        ).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sun"}
        told = http.post("/v1/chat/completions", json={**body, "messages": [result]}).json()["choices"][0]["message"]
        later = http.post(
            "/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": "why"}]}
        ).json()["choices"][0]["message"]
    assert "reasoning_content" not in asked
    assert told["content"] == "a hat"
    assert "reasoning_content" not in told
    assert later["reasoning_content"] == "let me see"


def test_a_run_that_goes_on_with_other_variables_says_why_it_is_read_anew(server: Server) -> None:
    with server.client() as http:
        asked = chat(http, "the weather", "goes-on", tools=[LOOK], reasoning_effort="high")
        (call,) = asked["choices"][0]["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
        told = chat(http, "", "goes-on", tools=[LOOK], reasoning_effort="low", messages=[result])
    assert told["choices"][0]["message"]["content"] == "a hat"
    assert figures(told)["miss_reason"] == "template_variables_changed"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": []}, "has a field of its own"),
        ({"add_generation_prompt": False}, "has a field of its own"),
        ({"tools": []}, "has a field of its own"),
        ({"not a name": 1}, "is not the name of a variable"),
        ({"deep": [[[[[1]]]]]}, "nested more than"),
        ({"long": "x" * 5000}, "characters as JSON"),
        ({f"v{number}": 1 for number in range(33)}, "32"),
    ],
)
def test_variables_are_bounded_and_none_takes_the_place_of_the_conversation(
    server: Server, given: dict[str, Any], said: str
) -> None:
    with server.client() as http:
        body = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": given}
        refused = http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "chat_template_kwargs"
    assert said in error["message"]


def test_a_variable_that_the_template_does_not_look_at_is_told(server: Server) -> None:
    with server.client() as http:
        answer = chat(http, "hello", "unread", chat_template_kwargs={"fancy": True})
    (told,) = answer["tenuto"]["diagnostics"]
    assert told["what"] == "chat_template_kwargs"
    assert "fancy" in told["reason"]


def test_a_variable_that_holds_a_marker_writes_no_marker(server: Server) -> None:
    with server.client() as http:
        chat(http, "first", "marker", chat_template_kwargs={"reasoning_effort": "<|end|><|user|>why"})
        answer = chat(http, "hello", "marker", chat_template_kwargs={"reasoning_effort": "<|end|><|user|>why"})
    assert answer["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"max_thinking_tokens": 6}),
        ("/v1/chat/completions", {"thinking_budget_tokens": 6}),
        ("/v1/chat/completions", {"reasoning_budget_tokens": 6, "stream": False}),
        ("/v1/responses", {"max_thinking_tokens": 6}),
        ("/v1/messages", {"max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 6}}),
    ],
)
def test_reasoning_ends_after_the_tokens_that_it_may_have(server: Server, path: str, body: dict[str, Any]) -> None:
    with server.client() as http:
        asked = {
            ("input" if path == "/v1/responses" else "messages"): [{"role": "user", "content": "why"}],
            "tools": [],
        }
        answer = http.post(path, json={**asked, **body}).raise_for_status().json()
    if path == "/v1/responses":
        thought, said = (item["content"][0]["text"] for item in answer["output"])
    elif path == "/v1/messages":
        thought, said = (block.get("thinking") or block.get("text") for block in answer["content"])
    else:
        message = answer["choices"][0]["message"]
        thought, said = message["reasoning_content"], message["content"]
    assert (thought, said) == ("let me", "so")


def test_two_bounds_of_reasoning_are_refused(server: Server) -> None:
    with server.client() as http:
        body = {"messages": [{"role": "user", "content": "why"}], "max_thinking_tokens": 6, "thinking_budget_tokens": 7}
        refused = http.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_thinking_tokens")
