"""Every error has its place in every dialect."""

import json
import math
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from tenuto import errors
from tenuto.errors import TenutoError
from tenuto.runtime.dialects.anthropic.errors import ANTHROPIC
from tenuto.runtime.dialects.anthropic.errors import ERRORS as ANTHROPIC_ERRORS
from tenuto.runtime.dialects.ollama.errors import ERRORS as OLLAMA_ERRORS
from tenuto.runtime.dialects.ollama.errors import OLLAMA
from tenuto.runtime.dialects.openai.errors import ERRORS, OPENAI
from tenuto.runtime.http.errors import ErrorForm, ErrorTable, error_headers


def _all_errors(cls: type[TenutoError] = TenutoError) -> set[type[TenutoError]]:
    below = {found for sub in cls.__subclasses__() for found in _all_errors(sub)}
    return {cls, *below}


def _json(form: ErrorForm, raised: TenutoError) -> Any:
    return json.loads(form.told(raised).encode())


@pytest.mark.parametrize("table", [OPENAI, ANTHROPIC, OLLAMA])
def test_every_error_has_an_entry(table: ErrorTable) -> None:
    ours = {cls for cls in _all_errors() if cls.__module__.startswith("tenuto.") and ".terminal." not in cls.__module__}
    assert ours - set(table) == set()
    assert all(400 <= entry.status < 600 for entry in table.values())


def test_an_error_without_an_entry_is_told_as_the_one_above_it() -> None:
    class Stricter(errors.SessionBusy):
        pass

    assert ERRORS.entry(Stricter) == OPENAI[errors.SessionBusy]


def test_what_is_only_known_to_be_too_long_is_told_as_that() -> None:
    told = _json(ERRORS, errors.ContextTooLong(900, 512, at_least=True))
    assert told["error"]["message"] == (
        "This model's maximum context length is 512 tokens. However, your messages resulted in at least 900 tokens."
    )


def test_a_dialect_may_say_an_error_in_words_of_its_own() -> None:
    words = "prompt is too long: {0.prompt_tokens} tokens > {0.limit} maximum".format
    entry = replace(OPENAI[errors.ContextTooLong], words=words)
    form = replace(ERRORS, table={**OPENAI, errors.ContextTooLong: entry})
    told = _json(form, errors.ContextTooLong(900, 512, 3))
    assert told["error"]["message"] == "prompt is too long: 900 tokens > 512 maximum"


@pytest.mark.parametrize(
    ("raised", "body"),
    [
        (
            errors.InvalidRequest("stop: wrong", "stop"),
            {"message": "stop: wrong", "type": "invalid_request_error", "param": "stop", "code": "invalid_request"},
        ),
        (
            errors.ContextTooLong(900, 512, 3),
            {
                "message": "This model's maximum context length is 512 tokens."
                " However, your messages resulted in 900 tokens. A fork at item 3 would fit.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
                "prompt_tokens": 900,
                "limit": 512,
                "fork_at": 3,
            },
        ),
        (
            errors.NotFound("model", "x", ["a", "b"]),
            {
                "message": "there is no model 'x'; known: a, b",
                "type": "not_found_error",
                "param": "model",
                "code": "model_not_found",
            },
        ),
        (
            errors.NotFound("session", "x"),
            {
                "message": "there is no session 'x'",
                "type": "not_found_error",
                "param": None,
                "code": "session_not_found",
            },
        ),
        (
            errors.SessionPaused("s", "r", "p", "approval"),
            {
                "message": "session 's' waits for approval p in run r; answer it first",
                "type": "conflict_error",
                "param": None,
                "code": "session_paused",
                "run_id": "r",
                "pause_id": "p",
                "reason": "approval",
            },
        ),
    ],
)
def test_openai_bodies(raised: TenutoError, body: dict[str, object]) -> None:
    assert _json(ERRORS, raised) == {"error": body}


@pytest.mark.parametrize(
    ("raised", "headers"),
    [
        (errors.SessionBusy("s", "r", 0.2), {"retry-after": "1"}),
        (errors.Overloaded("the queue", 2.5), {"retry-after": str(math.ceil(2.5))}),
        (errors.ShuttingDown("bye"), {"retry-after": "5"}),
        (errors.SessionPaused("s", "r", "p", "input"), {"x-should-retry": "false"}),
        (errors.AlreadyDecided("again"), {"x-should-retry": "false"}),
        (errors.Unauthenticated("who"), {"www-authenticate": "Bearer"}),
        (errors.StoreFailed("disk"), {}),
    ],
)
def test_who_may_try_again_is_told_so(raised: TenutoError, headers: dict[str, str]) -> None:
    assert error_headers(raised) == headers


def test_a_response_has_status_headers_and_body() -> None:
    response = ERRORS.response(errors.SessionBusy("s", "r"))
    assert (response.status_code, response.headers["retry-after"]) == (409, "1")
    assert response.headers["content-type"] == "application/json"
    assert b'"run_id":"r"' in bytes(response.body)


@pytest.mark.parametrize("code", [cls.code for cls in OPENAI])
def test_a_run_that_failed_is_told_by_its_code(code: str) -> None:
    status, told = ERRORS.told_of_run("it broke", code, "r1")
    body = json.loads(told.encode())
    known = next(entry for cls, entry in OPENAI.items() if cls.code == code)
    assert (status, body["error"]["type"], body["error"]["message"]) == (known.status, known.type, "it broke")
    assert body["error"]["run_id"] == "r1"


def test_a_run_that_failed_for_an_unknown_cause_is_a_server_error() -> None:
    status, told = ERRORS.told_of_run(None, None, "r1")
    body = json.loads(told.encode())
    assert (status, body["error"]["code"], bool(body["error"]["message"])) == (500, "internal", True)


def test_the_official_client_reads_our_errors() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        response = ERRORS.response(errors.NotFound("model", "x", ["a"]))
        return httpx2.Response(response.status_code, headers=dict(response.headers), content=bytes(response.body))

    client = openai.OpenAI(
        api_key="k", base_url="http://localhost", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="x", messages=[])
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("raised", "status", "kind"),
    [
        (errors.InvalidRequest("stop: wrong", "stop"), 400, "invalid_request_error"),
        (errors.Unauthenticated("who"), 401, "authentication_error"),
        (errors.Forbidden("elsewhere"), 403, "permission_error"),
        (errors.NotFound("model", "x", ["a"]), 404, "not_found_error"),
        (errors.SessionBusy("s", "r"), 409, "conflict_error"),
        (errors.BodyTooLarge(9), 413, "request_too_large"),
        (errors.Overloaded("the queue", 2.5), 429, "rate_limit_error"),
        (errors.GenerationFailed("it broke"), 500, "api_error"),
        (errors.ShuttingDown("bye"), 529, "overloaded_error"),
        (errors.StoreUnavailable("full"), 529, "overloaded_error"),
    ],
)
def test_anthropics_clients_read_the_same_id_in_the_body_and_in_a_header(
    raised: TenutoError, status: int, kind: str
) -> None:
    response = ANTHROPIC_ERRORS.response(raised)
    body = json.loads(bytes(response.body))
    assert (response.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert body["request_id"] == response.headers["request-id"]
    assert error_headers(raised).items() <= dict(response.headers).items()


def test_anthropics_clients_are_told_of_a_prompt_that_is_too_long_in_words_that_they_parse() -> None:
    body = _json(ANTHROPIC_ERRORS, errors.ContextTooLong(900, 512, 3))
    assert body["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 900 tokens > 512 maximum; a fork at item 3 would fit",
        "details": {
            "error_code": "context_too_long",
            "param": "messages",
            "prompt_tokens": 900,
            "limit": 512,
            "fork_at": 3,
        },
    }
    at_least = _json(ANTHROPIC_ERRORS, errors.ContextTooLong(900, 512, at_least=True))
    assert at_least["error"]["message"] == "prompt is too long: 900 tokens > 512 maximum"


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        (errors.NotFound("model", "x", ["a", "b"]), 404, "model 'x' not found; there is a, b"),
        (errors.NotFound("model", "x"), 404, "model 'x' not found"),
        (errors.NotFound("session", "x"), 404, "there is no session 'x'"),
        (errors.ContextTooLong(900, 512), 400, "the prompt has 900 tokens; the model takes at most 512"),
        (errors.Overloaded("the queue", 2.5), 503, "the queue is full; try again in 2.5 s"),
    ],
)
def test_ollamas_clients_are_told_in_one_text(raised: TenutoError, status: int, words: str) -> None:
    response = OLLAMA_ERRORS.response(raised)
    assert (response.status_code, json.loads(bytes(response.body))["error"]) == (status, words)
    assert error_headers(raised).items() <= dict(response.headers).items()
