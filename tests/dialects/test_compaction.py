"""A conversation is compacted, and goes on from what came of that. With the official client, on a real server."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.conftest import Start
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

SUMMARY = "They asked for the sky, which is blue over Ulm."
RULES: list[dict[str, Any]] = [
    {"user_matches": "^Summarize this", "text": SUMMARY},
    {"user": "the weather", "calls": [{"name": "weather", "arguments": {"city": "Ulm"}}]},
    {"tool_contains": "", "text": "Blue: ${tool}"},
]
WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("compaction")
    running = Server(folder, script(folder / "model.json", RULES, cells=16384)).start()
    yield running
    running.close()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """The official client, whose types know of more kinds of items than there are here."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S) as one:
        yield one


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def texts(output: Any) -> list[str]:
    """What the user has said, of an output that ends with a compaction."""
    *users, last = output
    assert last.type == "compaction"
    assert all((item.type, item.role) == ("message", "user") for item in users)
    return [item.content[0].text for item in users]


def whole(answer: Any) -> Any:
    """All of it. The client's types know of the assistant's messages alone."""
    return answer.to_dict(warnings=False)


def computed_is_new(answer: Any) -> None:
    rounds = whole(answer)["usage"]["tenuto"]["rounds"]
    assert [one["computed_tokens"] for one in rounds] == [one["new_tokens"] for one in rounds]


def test_a_stored_conversation_is_compacted_and_stays_as_it_is(client: Any) -> None:
    asked: Any = {"model": "default", "tools": [WEATHER], "instructions": "Be kind."}
    first = client.responses.create(**asked, input="the weather")
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sky"}
    second = client.responses.create(**asked, input=[result, user("hello")], previous_response_id=first.id)
    compacted = client.responses.compact(model="default", previous_response_id=second.id)
    assert compacted.object == "response.compaction"
    assert texts(compacted.output) == ["the weather", "hello"]
    computed_is_new(compacted)
    third = client.responses.create(**asked, input="abc", previous_response_id=second.id)
    assert third.output_text == "abc"
    assert third.to_dict()["tenuto"]["session_id"] == second.to_dict()["tenuto"]["session_id"], "it is no fork"


def test_what_came_of_it_is_sent_back_as_input_and_only_what_is_new_is_computed(client: Any) -> None:
    history = [user("the sky"), {"role": "assistant", "content": "Blue."}, user("over Ulm?")]
    compacted = client.responses.compact(model="default", input=history)
    assert texts(compacted.output) == ["the sky", "over Ulm?"]
    assert compacted.usage.output_tokens > len(SUMMARY)
    window = [*(whole(item) for item in compacted.output), user("abc")]
    first = client.responses.create(model="default", input=window)
    assert first.output_text == "abc"
    second = client.responses.create(model="default", input=[*window, *first.output, user("def")])
    assert second.output_text == "def"
    computed_is_new(second)
    bare = client.responses.input_tokens.count(model="default", input=[*window[:2], window[-1]])
    full = client.responses.input_tokens.count(model="default", input=window)
    assert full.input_tokens > bare.input_tokens + len(SUMMARY)
    again = client.responses.compact(model="default", input=window)
    assert texts(again.output) == ["the sky", "over Ulm?", "abc"]


async def test_the_asynchronous_client_compacts_too(server: Server) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S
    ) as client:
        compacted = await client.responses.compact(model="gpt-5.4", input="hello")
    assert texts(compacted.output) == ["hello"]


def test_a_compaction_that_is_none_of_ours_is_left_out(client: Any) -> None:
    item: Any = {"type": "compaction", "encrypted_content": "gAAAAABo"}
    answer = client.responses.create(model="default", input=[user("hello"), item, user("abc")])
    assert answer.to_dict()["tenuto"]["diagnostics"][0]["what"] == "input[1]"
    broken: Any = {"type": "compaction", "encrypted_content": "tenuto-summary-1.%%%"}
    answer = client.responses.create(model="default", input=[user("hello, you"), broken, user("abc")])
    assert answer.to_dict()["tenuto"]["diagnostics"][0]["what"] == "input[1]"


def test_nothing_to_compact_is_refused(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="input: give what is to be compacted"):
        client.responses.compact(model="default")
    with pytest.raises(openai.BadRequestError) as unknown:
        client.responses.compact(model="default", previous_response_id="resp_none")
    assert unknown.value.code == "previous_response_not_found"


def test_a_summary_is_kept_nowhere(start: Start) -> None:
    server = start(rules=RULES, cells=16384)
    with server.client() as http:
        stored = http.post("/v1/responses", json={"input": "the sky"}).json()
        compacted = http.post("/v1/responses/compact", json={"previous_response_id": stored["id"]})
        assert compacted.status_code == 200
    server.stop()
    kept = b"".join(path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file())
    assert b"the sky" in kept
    assert SUMMARY.encode() not in kept


def test_a_model_that_writes_nothing_is_an_error(start: Start) -> None:
    server = start(rules=[{"user_matches": "^Summarize", "text": ""}])
    with server.client() as http:
        assert http.post("/v1/responses/compact", json={"input": "hello"}).status_code == 500
