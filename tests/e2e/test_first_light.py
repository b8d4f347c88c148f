"""The embedded model as users get it: it calls a tool, its sequence pauses, resumes for nothing, and answers."""

from collections.abc import Iterator

import anyio
import pytest
from mcp import Client
from openai import OpenAI

from tests.conftest import Start
from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

QUESTIONS = [("What is 17 * 23?", "391"), ("What is 5 + 6?", "11"), ("What is 144 / 12?", "12")]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, embedded_model: str) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("first-light"), embedded_model, whole=True)
    try:
        yield server.start()
    finally:
        server.close()


def test_it_answers_from_a_tool_over_openai_and_computes_only_what_is_new(start: Start, embedded_model: str) -> None:
    server = start(model=embedded_model)  # of its own: nothing is in its cache yet
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    for number, (question, result) in enumerate(QUESTIONS):
        answer = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": question}],
            extra_body={"session_id": "first-light"},
        ).model_dump()
        assert result in answer["choices"][0]["message"]["content"]
        (call,) = answer["agentic_tool_calls"]
        assert (call["name"], call["result_content"]) == ("calculator__evaluate", result)
        first, resumed = answer["usage"]["tenuto"]["rounds"]
        assert resumed["computed_tokens"] == resumed["new_tokens"] < 30
        assert first["computed_tokens"] == first["new_tokens"]
        assert (first["residency"] == "device") == (number > 0)


def test_a_streamed_answer_is_the_whole_one(embedded: Server) -> None:
    client = OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "What is 17 * 23?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "391" in text
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices)
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens > 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_answers_from_a_tool_over_mcp(embedded: Server, mode: str) -> None:
    question, result = QUESTIONS[0]
    told: list[str] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    with anyio.fail_after(HANGS_S):
        async with Client(f"{embedded.url}/mcp", mode=mode) as client:
            answer = await client.call_tool(
                "chat", {"message": question, "session_id": f"mcp-{mode}"}, progress_callback=progress
            )
    assert answer.structured_content is not None
    assert result in answer.structured_content["text"]
    assert any("calculator__evaluate" in message for message in told)


def test_a_session_begun_over_openai_goes_on_over_mcp(embedded: Server) -> None:
    client = OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0)
    client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "What is 17 * 23?"}],
        extra_body={"session_id": "both"},
    )

    async def go_on() -> None:
        with anyio.fail_after(HANGS_S):
            async with Client(f"{embedded.url}/mcp") as mcp:
                answer = await mcp.call_tool("chat", {"message": "What is 5 + 6?", "session_id": "both"})
                assert answer.structured_content is not None
                assert "11" in answer.structured_content["text"]
                session = await mcp.call_tool("session_get", {"session_id": "both"})
                assert "17 * 23" in str(session.structured_content)

    anyio.run(go_on)
