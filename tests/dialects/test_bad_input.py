"""Whatever a request brings: one clear message in OpenAI's form, from a real server, which goes on as before."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, script
from tests.embedded import with_template

pytestmark = pytest.mark.slow

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAID = b'"messages":[{"role":"user","content":"a"}]'
KEYS = ("ada-key", "bob-key")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two keys, two models and small bodies."""
    folder = tmp_path_factory.mktemp("guarded")
    flags = [flag for key in KEYS for flag in ("--api-key", key)]
    other = script(folder / "other.json", cells=256)
    server = Server(
        folder,
        script(folder / "model.json", cells=256),
        (*flags, "--model", other, "--max-body-bytes", "20000"),
    ).start()
    yield server
    server.close()


@pytest.fixture
def as_ada(guarded: Server) -> Iterator[httpx.Client]:
    with guarded.client(headers={"Authorization": f"Bearer {KEYS[0]}"}) as client:
        yield client


def send(http: httpx.Client, body: bytes, path: str = CHAT) -> tuple[int, dict[str, Any]]:
    response = http.post(path, content=body, headers={"Content-Type": "application/json"})
    error: dict[str, Any] = response.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return response.status_code, error


def still_serves(http: httpx.Client) -> None:
    answer = http.post(CHAT, json={"messages": [{"role": "user", "content": "still there"}], "tools": []})
    assert answer.json()["choices"][0]["message"]["content"] == "still there"


# What is no JSON


@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON: EOF while parsing a value at line 1 column 0"),
        (b'{"messages": [', "the body is not valid JSON: EOF while parsing a list at line 1 column 14"),
        (b"[]", "the body must be a JSON object"),
        (b'{"x":"\xff\xfe"}', "the body is not valid JSON: invalid unicode code point at line 1 column 7"),
        (b'{"x":"\\ud800"}', "the body is not valid JSON: unexpected end of hex escape at line 1 column 13"),
        (b'{"x":' + b"[" * 9000, "the body is not valid JSON: recursion limit exceeded at line 1 column 206"),
        (b'{"x":NaN}', "the body is not valid JSON: expected value at line 1 column 6"),
        (b'{"x":' + b"9" * 5000 + b"}", "the body is not valid JSON: number out of range at line 1 column 4307"),
    ],
    ids=["empty", "cut", "array", "utf-8", "surrogate", "deep", "nan", "digits"],
)
def test_what_is_no_json_is_told_with_its_place(as_ada: httpx.Client, path: str, body: bytes, message: str) -> None:
    status, error = send(as_ada, body, path)
    assert (status, error["type"], error["param"], error["code"]) == (
        400,
        "invalid_request_error",
        None,
        "invalid_request",
    )
    assert error["message"] == message


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/sessions/s"), ("POST", "/v1/sessions/s/fork"), ("POST", "/v1/agent/approvals/a")],
)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"items": [', "the body is not valid JSON: EOF while parsing a list at line 1 column 11"),
        (b'{"x":"\xff\xfe"}', "the body is not valid JSON: invalid unicode code point at line 1 column 7"),
        (b'{"x":"\\ud800"}', "the body is not valid JSON: unexpected end of hex escape at line 1 column 13"),
        (b"[]", "the body must be a JSON object"),
    ],
    ids=["cut", "utf-8", "surrogate", "array"],
)
def test_so_it_is_wherever_a_body_is_read(
    as_ada: httpx.Client, method: str, path: str, body: bytes, message: str
) -> None:
    response = as_ada.request(method, path, content=body, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["message"]) == (400, "invalid_request", message)


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"version": 2}, "version", "version: Input should be 1"),
        ({"items": [{"kind": "user"}]}, "items.0.user.text", "items.0.user.text: Field required"),
        (
            {"parent": {"uid": "u", "at": 2**64}},
            "parent.at",
            "parent.at: Input should be less than 2147483648",
        ),
    ],
)
def test_what_is_no_session_is_told_with_its_place(
    as_ada: httpx.Client, changes: dict[str, Any], param: str, message: str
) -> None:
    document = {"version": 1, "created_at": 1.0, "updated_at": 1.0, "items": []} | changes
    response = as_ada.put("/v1/sessions/wrong", json=document)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["message"]) == (400, param, message)
    assert as_ada.get("/v1/sessions/wrong").status_code == 404


# What is JSON and no request


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (CHAT, b"{}", "messages", "messages: field required"),
        (CHAT, b'{"messages":"a"}', "messages", "messages: input should be a valid list"),
        (CHAT, b'{%s,"temperature":"1"}' % SAID, "temperature", "temperature: input should be a valid number"),
        (CHAT, b'{%s,"temperature":1e999}' % SAID, "temperature", "temperature: input should be a finite number"),
        (
            CHAT,
            b'{%s,"seed":1%s}' % (SAID, b"0" * 400),
            "seed",
            "seed: input should be less than 18446744073709551616",
        ),
        (
            CHAT,
            b'{%s,"max_tokens":1%s}' % (SAID, b"0" * 400),
            "max_tokens",
            "max_tokens: input should be less than or equal to 2147483647",
        ),
        (CHAT, b'{%s,"n":1000000}' % SAID, "n", "n: input should be less than or equal to 16"),
        (TEXT, b"{}", "prompt", "prompt: field required"),
        (TEXT, b'{"prompt":[1,"a"]}', "prompt", "prompt: must be a string, a list of token ids, or a list of either"),
        (TEXT, b'{"prompt":[-1]}', "prompt", "prompt: must be a string, a list of token ids, or a list of either"),
        (TEXT, b'{"prompt":""}', "prompt", "the prompt has no tokens to go on from"),
        (TEXT, b'{"prompt":[9999]}', "prompt", "the prompt has a token beyond the vocabulary of 266"),
        (TEXT, b'{"prompt":["a","b","c","d","e"],"n":16}', "prompt", "prompt: 5 times 16 texts are more than 64"),
        ("/tokenize", b"{}", "content", "give one of content, prompt and messages"),
        ("/tokenize", b'{"content":1}', "content", "content: input should be a valid string"),
        (
            "/detokenize",
            b'{"tokens":[1,9999]}',
            "tokens[1]",
            "tokens[1]: there is no token 9999; token ids go from 0 to 265",
        ),
    ],
)
def test_what_is_no_request_is_told_with_the_field(
    as_ada: httpx.Client, path: str, body: bytes, param: str, message: str
) -> None:
    status, error = send(as_ada, body, path)
    assert (status, error["code"], error["param"], error["message"]) == (400, "invalid_request", param, message)


def test_a_body_that_is_too_large_is_refused(as_ada: httpx.Client) -> None:
    status, error = send(as_ada, b'{"messages":"' + b"a" * 20_000)
    assert (status, error["code"], error["message"]) == (
        413,
        "body_too_large",
        "the body is larger than 20000 bytes, which is the setting max_body_bytes",
    )
    still_serves(as_ada)


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, b'{"model":"gpt-9",%s}' % SAID), (TEXT, b'{"model":"gpt-9","prompt":"a"}')],
)
def test_an_unknown_model_is_told_with_those_that_there_are(as_ada: httpx.Client, path: str, body: bytes) -> None:
    status, error = send(as_ada, body, path)
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["message"] == "there is no model 'gpt-9'; known: model, other"


def test_another_principals_session_is_as_one_that_is_not_there(guarded: Server, as_ada: httpx.Client) -> None:
    with guarded.client(headers={"Authorization": f"Bearer {KEYS[1]}"}) as bob:
        body = {"messages": [{"role": "user", "content": "mine"}], "session_id": "private", "tools": []}
        assert as_ada.post(CHAT, json=body).status_code == 200
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/fork")):
            response = bob.request(method, f"/v1/sessions/private{path}")
            assert response.status_code == 404
            assert response.json()["error"]["message"] == "there is no session 'private'"
        # Under that id bob has a session of his own, of which ada sees nothing.
        assert bob.post(CHAT, json=body).status_code == 200
        assert len(as_ada.get("/v1/sessions/private").json()["items"]) == 2
    assert httpx.get(f"{guarded.url}/v1/sessions/private").json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a" * 300}], "tools": []}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": "a" * 300}], "tools": [], "n": 2}, "messages"),
        (TEXT, {"prompt": "a" * 300}, "prompt"),
    ],
)
def test_a_context_that_is_too_long_is_told_with_its_sizes(
    as_ada: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    status, error = send(as_ada, json.dumps(body).encode(), path)
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", param)
    assert error["message"] == (
        "This model's maximum context length is 256 tokens."
        f" However, your messages resulted in {error['prompt_tokens']} tokens."
    )
    still_serves(as_ada)


# Schemas


def _format(schema: object, *, strict: bool = True) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": strict, "schema": schema}}
    }


def _tool(parameters: object) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}


@pytest.mark.parametrize("wrap", [_format, _tool])
@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "object", "properties": 5}, '5 is not of type "object" at $.properties'),
        ({"type": "object", "$schema": []}, "[] is not of type \"string\" at $['$schema']"),
        ({"type": "object", "required": "a"}, '"a" is not of type "array" at $.required'),
        (
            {"type": "object", "properties": {"a": {"type": "objekt"}}},
            "\"objekt\" is not valid under any of the schemas listed in the 'anyOf' keyword at $.properties.a.type",
        ),
    ],
)
def test_what_is_no_schema_is_refused_and_why(
    as_ada: httpx.Client, wrap: Callable[[object], dict[str, Any]], schema: object, problem: str
) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], **wrap(schema)}
    status, error = send(as_ada, json.dumps(body).encode())
    place = "response_format.json_schema.schema" if wrap is _format else "tools[0].function.parameters"
    assert (status, error["param"], error["message"]) == (400, place, f"{place}: not a JSON schema: {problem}")


def test_a_strict_schema_that_no_grammar_can_hold_is_refused(as_ada: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "tools": [], **_format({"$ref": "#/nowhere"})}
    status, error = send(as_ada, json.dumps(body).encode())
    assert (status, error["param"]) == (400, "response_format")
    assert error["message"].startswith("the schema of the answer cannot be enforced: ")
    assert "'/nowhere' does not exist" in error["message"]


# Templates


def test_a_template_that_fails_says_so_and_keeps_nothing(start: Any, embedded_model: str, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.content == 'nonsense' %}{{ raise_exception('no nonsense here') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    server = start(model=with_template(embedded_model, template, tmp_path))
    with server.client() as http:
        body = {"messages": [{"role": "user", "content": "nonsense"}, {"role": "user", "content": "a"}]}
        status, error = send(http, json.dumps(body | {"session_id": "s", "tools": []}).encode())
        assert (status, error["code"], error["param"]) == (400, "template_failed", "messages")
        assert error["message"] == "no nonsense here"
        assert http.get("/v1/sessions/s").status_code == 404
        fine = {"messages": body["messages"][1:], "tools": [], "max_tokens": 2}
        assert http.post(CHAT, json=fine).status_code == 200


def test_an_imported_image_is_kept_and_reads_as_a_note(as_ada: httpx.Client) -> None:
    image = {"kind": "image", "mime_type": "image/png", "data": "aGk=", "uri": None}
    item = {"kind": "user", "text": "What is this?", "attachments": [image]}
    document = {"version": 1, "created_at": 1.0, "updated_at": 1.0, "items": [item]}
    assert as_ada.put("/v1/sessions/seen", json=document).status_code == 200
    assert as_ada.get("/v1/sessions/seen").json()["items"] == [item]
    body = {"messages": [{"role": "user", "content": "and this?"}], "session_mode": "append", "tools": []}
    answer = as_ada.post(CHAT, json=body | {"session_id": "seen"})
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "and this?")
