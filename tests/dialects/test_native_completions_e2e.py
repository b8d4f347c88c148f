"""llama-server's own form of completions, against a real server."""

import json
from typing import Any

import httpx
import pytest

from tenuto.runtime.dialects.openai.native_completions import wire as native

pytestmark = pytest.mark.slow

PATH = "/completion"
SAID = "upon a time"
PROMPT: list[Any] = [258, SAID, 261, 259]
"""What the model reads of a chat, which its script answers with the same text."""


def asked(http: httpx.Client, **body: Any) -> Any:
    return http.post(PATH, json={"prompt": PROMPT, "n_predict": 4, **body}).raise_for_status().json()


def text_of(http: httpx.Client, tokens: list[int]) -> str:
    text: str = http.post("/detokenize", json={"tokens": tokens}).raise_for_status().json()["content"]
    return text


def ids(http: httpx.Client) -> list[int]:
    return [258, *http.post("/tokenize", json={"content": SAID}).json()["tokens"], 261, 259]


def test_a_text_is_that_of_openais_form_with_what_it_took(http: httpx.Client) -> None:
    answer = asked(http, return_tokens=True, temperature=0.0, seed=7)
    openais = http.post("/v1/completions", json={"prompt": ids(http), "max_tokens": 4}).json()
    assert answer["content"] == openais["choices"][0]["text"] == SAID[:4] == text_of(http, answer["tokens"])
    assert (answer["stop"], answer["stop_type"], answer["truncated"], answer["index"]) == (True, "limit", False, 0)
    prompt = ids(http)
    assert answer["prompt"] == text_of(http, prompt)
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (4, len(prompt))
    timings = answer["timings"]
    assert (timings["predicted_n"], timings["prompt_n"] + timings["cache_n"]) == (4, len(prompt))
    assert min(timings.values()) >= 0
    settings = answer["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["temperature"]) == (4, 7, 0.0)
    assert asked(http)["tokens"] == []


def test_a_stream_brings_the_same_text_and_its_tokens(http: httpx.Client) -> None:
    whole = asked(http, return_tokens=True, temperature=0.0)
    body = {"prompt": PROMPT, "n_predict": 4, "stream": True, "temperature": 0.0}
    lines = http.post(PATH, json=body).raise_for_status().text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [token for event in events for token in event["tokens"]] == whole["tokens"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["timings"]["predicted_n"] == 4


def test_a_prompt_may_be_a_text_an_object_ids_or_both_and_a_list_of_them(http: httpx.Client) -> None:
    forms: list[Any] = [PROMPT, ids(http), "abc", {"prompt_string": "abc"}]
    read = [asked(http, prompt=form, temperature=0.0)["prompt"] for form in forms]
    assert read[0] == read[1]
    assert read[2] == read[3]
    assert "abc" in read[2]
    together = asked(http, prompt=forms, temperature=0.0)
    assert [(one["index"], one["prompt"]) for one in together] == list(enumerate(read))
    assert together[0]["content"] == together[1]["content"] == SAID[:4]


def test_a_bias_is_named_by_a_token_or_by_a_text(http: httpx.Client) -> None:
    plain = asked(http, temperature=0.0, return_tokens=True)
    (first, *_) = plain["tokens"]
    piece = text_of(http, [first])
    for biases in ([[first, -100]], {str(first): -100}, [[piece, -100]], {piece: False}):
        assert asked(http, temperature=0.0, return_tokens=True, logit_bias=biases)["tokens"][0] != first


def test_a_stop_string_is_told(http: httpx.Client) -> None:
    text = asked(http, temperature=0.0)["content"]
    answer = asked(http, temperature=0.0, stop=[text[1:3]])
    assert (answer["content"], answer["stop_type"], answer["stopping_word"]) == (text[:1], "word", text[1:3])


@pytest.mark.parametrize("name", native.IGNORED)
def test_what_is_ignored_does_not_change_an_answer(http: httpx.Client, name: str) -> None:
    assert asked(http, temperature=0.0, **{name: {"type": "x"}})["content"] == SAID[:4]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, {"prompt_string": "a"}]}, "prompt"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}}, "prompt"),
        ({"prompt": "x" * 100_000}, "prompt"),
        ({"n_probs": 3}, "n_probs"),
        ({"grammar": 'root ::= "a"'}, "grammar"),
        ({"logit_bias": [["a", True]]}, "logit_bias"),
    ],
)
def test_what_is_no_request_or_not_served_is_told_with_the_field(
    http: httpx.Client, body: dict[str, Any], param: str
) -> None:
    refused = http.post(PATH, json={"prompt": "a", "n_predict": 4, **body})
    assert (refused.status_code, refused.json()["error"]["param"].partition(".")[0]) == (400, param), refused.text
