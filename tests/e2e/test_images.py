"""A model that reads images, as clients have it: a small random one, whose greedy answers tell prompts apart."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.conftest import Start
from tests.e2e.forked import tool_server
from tests.e2e.server import Server
from tests.patience import HANGS_S
from tests.pipelines.pictures import picture
from tests.pipelines.tiny_vision import tiny_vision

pytestmark = pytest.mark.slow

CAMERA = Path(__file__).parent / "camera.py"
FITTING = ("--slots", "4", "--context", "1024")
NO_TOOLS = ("--default-tools", "none")
"""A random model would look at them more than at a picture."""
COUNT = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_vision(tmp_path_factory.mktemp("model"), "square").model)


@pytest.fixture(scope="module")
def seeing(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("seeing"), model, (*FITTING, *NO_TOOLS))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def http(seeing: Server) -> Iterator[httpx.Client]:
    with seeing.client() as client:
        yield client


def shown(*seeds: int, text: str = "what is it?") -> dict[str, Any]:
    return {"role": "user", "content": [*map(part, seeds), {"type": "text", "text": text}]}


def part(seed: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(seed)}"}}


def said(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def ask(http: httpx.Client, *messages: dict[str, Any], **options: Any) -> dict[str, Any]:
    body = {"messages": messages, "temperature": 0, "max_tokens": COUNT, **options}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


def test_an_answer_is_the_same_streamed_whole_alone_and_among_others(seeing: Server, http: httpx.Client) -> None:
    alone = [said(ask(http, shown(*seeds))) for seeds in ((1,), (2,), (1, 2), ())]
    assert len(set(alone)) == 4
    client = openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0)

    def streamed(seeds: tuple[int, ...]) -> str:
        chunks = client.chat.completions.create(
            model="default",
            messages=cast(Any, [shown(*seeds)]),  # a dictionary, as its users write them
            temperature=0,
            max_tokens=COUNT,
            stream=True,
        )
        read = [chunk for chunk in chunks if isinstance(chunk, ChatCompletionChunk) and chunk.choices]
        return "".join(chunk.choices[0].delta.content or "" for chunk in read)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(streamed, ((1,), (2,), (1, 2), ()))) == alone


def test_an_answer_is_the_same_in_every_dialect(seeing: Server, http: httpx.Client) -> None:
    chat = said(ask(http, shown(1)))
    client = openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0)
    response = client.responses.create(
        model="default",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": f"data:image/png;base64,{picture(1)}", "detail": "auto"},
                    {"type": "input_text", "text": "what is it?"},
                ],
            }
        ],
        temperature=0,
        max_output_tokens=COUNT,
    )
    assert response.output_text == chat
    message = anthropic.Anthropic(base_url=seeing.url, api_key="none", max_retries=0).messages.create(
        model="default",
        max_tokens=COUNT,
        extra_body={"temperature": 0},
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture(1)}},
                    {"type": "text", "text": "what is it?"},
                ],
            }
        ],
    )
    assert [block.text for block in message.content if block.type == "text"] == [chat]
    asked = {"role": "user", "content": "what is it?", "images": [picture(1)]}
    options = {"temperature": 0, "num_predict": COUNT}
    body = {"model": "default", "messages": [asked], "stream": False, "options": options}
    assert http.post("/api/chat", json=body).json()["message"]["content"] == chat


def test_it_is_told_that_the_model_reads_images(http: httpx.Client) -> None:
    (model,) = http.get("/v1/models").json()["data"]
    assert "image" in model["capabilities"]
    assert "vision" in http.post("/api/show", json={"model": model["id"]}).json()["capabilities"]
    assert http.get("/props").json()["modalities"]["vision"] is True


def test_a_session_goes_on_after_an_image_in_a_fork_and_after_a_crash(model: str, start: Start) -> None:
    server = start(*FITTING, *NO_TOOLS, model=model)
    with server.client() as http:
        first = ask(http, shown(1), session_id="a")
        assert first["usage"]["tenuto"]["computed_tokens"] == first["usage"]["prompt_tokens"]
        for fork in "bc":
            http.post("/v1/sessions/a/fork", json={"session_id": fork, "at": 2}).raise_for_status()
        follow = {"role": "user", "content": "and why?"}
        second = ask(http, follow, session_id="a")
        (round,) = second["usage"]["tenuto"]["rounds"]
        assert round["computed_tokens"] == round["new_tokens"]
        assert said(ask(http, follow, session_id="b")) == said(second)
    server.kill()
    server.start()
    with server.client() as http:
        again = ask(http, follow, session_id="c")
        assert (said(again), again["usage"]["tenuto"]["residency"]) == (said(second), "none")


def test_what_is_no_image_is_refused_before_anything_changes(http: httpx.Client) -> None:
    bomb = _header_of_a_bomb()
    for data, why in (("aGk=", "is none of PNG"), (picture(1)[:120], "cannot be decoded"), (bomb, "pixels")):
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        body = {"messages": [{"role": "user", "content": [image]}], "session_id": "refused"}
        refused = http.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400
        assert why in refused.json()["error"]["message"]
        source = {"type": "base64", "media_type": "image/png", "data": data}
        message = {"role": "user", "content": [{"type": "image", "source": source}]}
        refused = http.post("/v1/messages", json={"model": "m", "max_tokens": 1, "messages": [message]})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        asked = {"model": "m", "messages": [{"role": "user", "content": "", "images": [data]}]}
        assert http.post("/api/chat", json=asked).status_code == 400
    assert http.get("/v1/sessions/refused").status_code == 404


def test_an_image_that_lies_elsewhere_is_not_fetched(http: httpx.Client) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    refused = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [image]}]})
    assert refused.status_code == 400
    assert "send it as a data: URL" in refused.json()["error"]["message"]


def test_a_request_brings_only_so_many_images(http: httpx.Client) -> None:
    refused = http.post("/v1/chat/completions", json={"messages": [shown(*[1] * 65)]})
    assert refused.status_code == 400
    assert "64 images" in refused.json()["error"]["message"]


def test_the_model_sees_the_picture_of_a_clients_tool(http: httpx.Client) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "shoot", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}

    def result(*content: dict[str, Any]) -> dict[str, Any]:
        tool = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "click"}, *content]}
        return ask(http, {"role": "user", "content": "shoot"}, calling, tool)

    seen, other, blind = result(part(1)), result(part(2)), result()
    assert len({said(seen), said(other), said(blind)}) == 3
    assert seen["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"] == blind["usage"]["prompt_tokens"] + 18
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    noted = result(broken)["usage"]["prompt_tokens"]
    assert noted > blind["usage"]["prompt_tokens"], "a note stands in the place of what is no image"


def test_the_model_sees_the_picture_of_a_servers_tool(model: str, tmp_path: Path, start: Start) -> None:
    def shot(seed: int) -> dict[str, Any]:
        far = {**tool_server(CAMERA, picture(seed)), "permission": "auto"}
        config = tmp_path / f"{seed}.json"
        config.write_text(json.dumps({"mcpServers": {"camera": far}}))
        server = start(*FITTING, "--default-tools", "camera__shoot", "--mcp-config", str(config), model=model)
        with server.client() as http:
            user = {"role": "user", "content": "shoot"}
            body = {
                "messages": [user],
                "temperature": 0,
                "max_tokens": 64,
                "tool_choice": "required",
                "session_id": "s",
            }
            return {
                "answer": http.post("/v1/chat/completions", json=body, timeout=HANGS_S).json(),
                "items": http.get("/v1/sessions/s").json()["items"],
            }

    one, other = shot(1), shot(2)
    for seed, each in ((1, one), (2, other)):
        (called,) = each["answer"]["agentic_tool_calls"]
        assert called["name"] == "camera__shoot"
        results = [item for item in each["items"] if item["kind"] == "tool_result"]
        assert results[0]["attachments"][0]["data"] == picture(seed)
    first, second = one["answer"]["usage"]["tenuto"]["rounds"]
    assert second["new_tokens"] > 18 + 1
    assert second["computed_tokens"] == second["new_tokens"]
    assert first["prompt_tokens"] < second["prompt_tokens"]
    assert said(one["answer"]) != said(other["answer"])


def test_a_session_with_an_image_goes_on_where_nobody_sees_it(http: httpx.Client, start: Start) -> None:
    ask(http, shown(1), session_id="moves")
    exported = http.get("/v1/sessions/moves").json()
    blind = start(rules=[{"text": "hello"}])
    with blind.client() as other:
        assert other.put("/v1/sessions/moved", json=exported).status_code in (200, 201)
        answer = other.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "and now?"}], "session_id": "moved"}
        )
        assert answer.json()["choices"][0]["message"]["content"] == "hello"


def test_the_tokens_of_an_image_are_counted(http: httpx.Client) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": picture(1)}
    texts = [{"type": "text", "text": "what is it?"}]

    def count(content: list[dict[str, Any]]) -> int:
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        counted: int = http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
        return counted

    assert count([{"type": "image", "source": source}, *texts]) == count(texts) + 18


def _header_of_a_bomb() -> str:
    """A small file that says it has a hundred million pixels."""
    import base64
    import struct
    import zlib

    body = b"IHDR" + struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = zlib.compress(b"")
    chunk = b"IDAT" + data
    whole = head + struct.pack(">I", len(data)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return base64.b64encode(whole).decode()
