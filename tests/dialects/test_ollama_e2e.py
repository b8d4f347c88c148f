"""Ollama's API against a real server, with the official client and with what other clients of it send."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import jsonschema
import ollama
import pytest

from tests.dialects.conftest import RULES
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

PNG = "iVBORw0KGgo="
KEY = "the-key"


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"sun over {city}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key, two models, a small context and small bodies."""
    folder = tmp_path_factory.mktemp("guarded")
    other = script(folder / "other.json", cells=256)
    flags = ("--api-key", KEY, "--model", other, "--max-body-bytes", "20000")
    running = Server(folder, script(folder / "model.json", RULES, cells=256), flags).start()
    yield running
    running.close()


@pytest.fixture
def client(server: Server) -> Iterator[ollama.Client]:
    """The official client, as its users make it."""
    with ollama.Client(server.url, timeout=HANGS_S) as client:
        yield client


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(server.url, timeout=HANGS_S) as client:
        yield client


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def ask(http: httpx.Client, messages: list[Any], **more: Any) -> dict[str, Any]:
    response = http.post("/api/chat", json={"model": "default", "messages": messages, "stream": False, **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def computed_is_new(answer: dict[str, Any]) -> bool:
    """Whether nothing was computed again, by the server's own figures of each round."""
    usage = answer["tenuto"]["usage"]
    rounds = [one["computed_tokens"] == one["new_tokens"] for one in usage["rounds"]]
    return all(rounds) and usage["cached_tokens"] > 0


# The official client


def test_a_chat_whole_and_streamed(client: ollama.Client) -> None:
    text = "Grüße — “\u2028\r\n” 🎈"
    whole = client.chat("model", said(text))
    pieces = list(client.chat("model", said(text), stream=True))
    assert whole.message.content == text
    assert "".join(piece.message.content or "" for piece in pieces) == text
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (whole.done_reason, pieces[-1].done_reason, whole.model) == ("stop", "stop", "model")
    assert whole.eval_count == pieces[-1].eval_count
    assert whole.total_duration is not None
    assert whole.total_duration >= (whole.eval_duration or 0)


async def test_so_it_is_asynchronously(async_client: ollama.AsyncClient) -> None:
    whole = await async_client.chat("model", said("think"), think=True)
    pieces = [piece async for piece in await async_client.chat("model", said("think"), think=True, stream=True)]
    assert (whole.message.thinking, whole.message.content) == ("let me see", "done")
    assert "".join(piece.message.thinking or "" for piece in pieces) == "let me see"
    hidden = await async_client.chat("model", said("think"), think=False)
    assert (hidden.message.thinking, hidden.message.content) == (None, "done")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_loop_without_ids_computes_only_what_is_new(
    client: ollama.Client, http: httpx.Client, streamed: bool
) -> None:
    """The client's own messages have no place for the ids of calls, nor has that of LangChain for the tool's name."""
    messages: list[Any] = said(f"the weather in Ulm{'m' * streamed}")
    if streamed:
        asked = list(client.chat("model", messages, tools=[weather], stream=True))[-1].message
    else:
        asked = client.chat("model", messages, tools=[weather]).message
    assert asked.tool_calls is not None
    (call,) = asked.tool_calls
    assert (call.function.name, call.function.arguments["city"][:3]) == ("weather", "Ulm")
    result = {"role": "tool", "content": weather("Ulm")}
    messages += [asked, result if streamed else {**result, "tool_name": "weather"}]
    answered = client.chat("model", messages, tools=[weather]).message
    assert answered.content == "Take a hat: sun over Ulm"
    dumped = [one if isinstance(one, dict) else one.model_dump(exclude_none=True) for one in [*messages, answered]]
    tools = [ollama._utils.convert_function_to_tool(weather).model_dump(exclude_none=True)]
    again = ask(http, [*dumped, *said("thanks")], tools=tools)
    assert again["message"]["content"] == "thanks"
    assert computed_is_new(again)


def test_limits_and_stops_cut_the_answer(client: ollama.Client) -> None:
    cut = client.chat("model", said("abcdefgh"), options={"num_predict": 3})
    stopped = client.chat("model", said("abcdefgh"), options=ollama.Options(stop=["xy", "ef"], num_ctx=1024))
    assert (cut.message.content, cut.done_reason, cut.eval_count) == ("abc", "length", 3)
    assert (stopped.message.content, stopped.done_reason) == ("abcd", "stop")


def test_a_format_holds_the_answer(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert json.loads(client.chat("model", said('{"a": 7}'), format=schema).message.content or "") == {"a": 7}
    assert json.loads(client.chat("model", said('{"b": 1}'), format="json").message.content or "") == {"b": 1}


def test_a_prompt_whole_streamed_and_raw(client: ollama.Client) -> None:
    assert client.generate("model", "hello", system="Be kind.").response == "hello"
    assert "".join(piece.response or "" for piece in client.generate("model", "hello", stream=True)) == "hello"
    raw = client.generate("model", "hello", raw=True, options={"num_predict": 4})
    assert (raw.done, raw.prompt_eval_count) == (True, 5)
    with pytest.raises(ollama.ResponseError, match="send the conversation to /api/chat") as refused:
        client.generate("model", "hello", context=[1, 2])
    assert refused.value.status_code == 400


def test_logprobs_spell_the_text(client: ollama.Client) -> None:
    found = client.chat("model", said("abc"), logprobs=True, top_logprobs=1).logprobs or []
    assert [(one.token, one.logprob) for one in found] == [("a", 0.0), ("b", 0.0), ("c", 0.0)]


def test_a_model_is_loaded_by_a_request_without_words(client: ollama.Client) -> None:
    assert client.chat("model", []).done_reason == "load"
    assert client.generate("model", "", keep_alive=0).done_reason == "load"


def test_models_are_told_as_ollama_tells_them(client: ollama.Client) -> None:
    (tag, *_), (loaded, *_), shown = client.list().models, client.ps().models, client.show("model:latest")
    assert (tag.model, loaded.model, loaded.context_length) == ("model", "model", 4096)
    assert tag.digest == loaded.digest
    assert shown.modelinfo is not None
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == 4096
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert "<|assistant|>" in (shown.template or "")


def test_a_model_that_is_there_need_not_be_pulled(client: ollama.Client) -> None:
    assert client.pull("model").status == "success"
    assert [one.status for one in client.pull("model", stream=True)] == ["success"]


def test_what_goes_wrong_is_an_error_of_the_clients(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="sampler fail") as whole:
        client.chat("model", said("break"))
    assert whole.value.status_code == 500
    with pytest.raises(ollama.ResponseError, match="sampler fail"):
        list(client.chat("model", said("break"), stream=True))


# Other clients


def test_clients_find_the_server_before_they_ask(http: httpx.Client) -> None:
    """The command `ollama` sends HEAD; Codex and others look at the version and at the list of models."""
    assert http.head("/").status_code == 200
    assert http.get("/").text == "Tenuto is running"
    version = [int(part) for part in http.get("/api/version").json()["version"].split(".")]
    assert version >= [0, 13, 4]
    assert [model["name"] for model in http.get("/api/tags").json()["models"]][:1] == ["model"]
    pulled = http.post("/api/pull", json={"name": "gpt-oss:20b", "stream": True})
    assert [json.loads(line) for line in pulled.text.splitlines()] == [{"status": "success"}]


def test_a_request_of_open_webui_is_answered(http: httpx.Client) -> None:
    body = {
        "model": "model:latest",
        "messages": [{"role": "user", "content": "what is this", "images": [PNG]}],
        "options": {"num_ctx": 8192, "num_predict": -2, "repeat_last_n": 64, "mirostat": 0, "use_mmap": True},
        "keep_alive": "5m",
        "metadata": {"user_id": "1"},
    }
    lines = [json.loads(line) for line in http.post("/api/chat", json=body).text.splitlines()]
    assert "".join(line["message"]["content"] for line in lines).startswith("what is this\n[image: image/png")
    assert [one["what"] for one in lines[-1]["tenuto"]["diagnostics"]] == ["image"]


def test_the_servers_tools_are_told_beside_the_answer(http: httpx.Client) -> None:
    without: list[dict[str, Any]] = [{}, {"tools": []}]
    for tools in without:
        body = ask(http, said("what is 12 * 7?"), **tools)
        assert body["message"] == {"role": "assistant", "content": "That makes 84."}
        (call,) = body["tenuto"]["agentic_tool_calls"]
        assert (call["name"], call["result_content"]) == ("calculator__evaluate", "84")


def test_a_run_that_waits_for_a_person_says_so(server: Server) -> None:
    with server.client(headers={"X-Tenuto-Session": "asking-ollama"}) as http:
        first = ask(http, said("hello"))
        assert first["tenuto"]["session_id"] == "asking-ollama"
        again = ask(http, said("hello again"))
        assert again["tenuto"]["session_id"] == "asking-ollama"
        assert len(http.get("/v1/sessions/asking-ollama").json()["items"]) == 4


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/api/chat", {"model": "nobody", "messages": said("hello")}, 404, "model 'nobody' not found"),
        ("POST", "/api/show", {"name": "nobody"}, 404, "model 'nobody' not found"),
        ("POST", "/api/show", {}, 400, "model: field required"),
        ("POST", "/api/pull", {"model": "nobody"}, 404, "model 'nobody' not found"),
        ("POST", "/api/chat", {"messages": said("a" * 2000)}, 400, "the model takes at most 256"),
        ("POST", "/api/generate", {"prompt": "a" * 2000, "raw": True}, 400, "the model takes at most 256"),
        ("POST", "/api/chat", {"messages": said("a" * 40_000)}, 413, "larger than 20000 bytes"),
        ("POST", "/api/create", {"model": "mine"}, 404, "POST /api/create: not found"),
        ("GET", "/api/chat", None, 405, "method not allowed"),
    ],
)
def test_every_error_is_a_text(guarded: Server, method: str, path: str, body: Any, status: int, words: str) -> None:
    with guarded.client(headers={"Authorization": f"Bearer {KEY}"}) as http:
        response = http.request(method, path, json=body)
    assert response.status_code == status
    assert words in response.json()["error"]


def test_a_key_is_asked_for_in_ollamas_form(guarded: Server) -> None:
    with guarded.client() as http:
        for path in ("/api/tags", "/api/elsewhere"):
            response = http.get(path)
            assert (response.status_code, isinstance(response.json()["error"], str)) == (401, True)


def test_every_line_is_what_the_description_says(http: httpx.Client) -> None:
    api = http.get("/openapi.json").json()
    for path, body in (("/api/chat", {"messages": said("think")}), ("/api/generate", {"prompt": "break"})):
        content = api["paths"][path]["post"]["responses"]["200"]["content"]
        line_schema = {**content["application/x-ndjson"]["schema"], "components": api["components"]}
        lines = [json.loads(line) for line in http.post(path, json=body).text.splitlines()]
        assert len(lines) > 1
        for line in lines:
            jsonschema.validate(line, line_schema)


# llama-server


def test_props_and_slots_are_those_of_llama_server(http: httpx.Client) -> None:
    props = http.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (8, 4096)
    assert props["modalities"] == {"vision": False, "audio": False}
    assert "<|assistant|>" in props["chat_template"]
    slots = http.get("/slots", params={"model": "model"}).json()
    assert [slot["id"] for slot in slots] == list(range(8))
    assert {slot["is_processing"] for slot in slots} <= {False, True}


def test_a_slot_that_works_says_so(server: Server) -> None:
    with server.client() as http, http.stream("POST", "/api/chat", json={"messages": said("slow")}) as response:
        next(response.iter_lines())
        assert http.get("/slots").json()[0]["is_processing"] is True


async def test_embeddings_of_one_text_and_of_several(client: ollama.Client, async_client: ollama.AsyncClient) -> None:
    several = client.embed("vectors", ["blue", "sky"])
    one = await async_client.embed("vectors", "blue", dimensions=8)
    assert several.embeddings[0] == one.embeddings[0]
    assert (several.model, several.prompt_eval_count) == ("vectors", 5 + 4)
    cut = client.embed("vectors", "x" * 1000)
    assert (len(cut.embeddings), cut.prompt_eval_count) == (1, 64)
    with pytest.raises(ollama.ResponseError, match=r"shorten input\[0\]"):
        client.embed("vectors", "x" * 1000, truncate=False)
    with pytest.raises(ollama.ResponseError, match="cannot make vectors of texts; there is vectors"):
        client.embed("model", "blue")
    assert client.show("vectors").capabilities == ["embedding"]
