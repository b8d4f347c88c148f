"""Responses over a WebSocket, with the official client, sync and async, and with a plain one.

https://platform.openai.com/docs/guides/websocket-mode
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message, Scope
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tenuto.errors import BodyTooLarge
from tenuto.runtime.app import opened
from tenuto.runtime.config import Settings
from tenuto.runtime.dialects.openai.responses.created import MOST_PAST_BYTES, Past, read_created
from tests.conftest import Start
from tests.dialects.test_responses_e2e import CALCULATOR, WEATHER, computed_is_new
from tests.e2e.server import Server, script
from tests.patience import HANGS_S

pytestmark = [
    pytest.mark.slow,
    # The official client opens its sockets so.
    pytest.mark.filterwarnings("ignore:connect.* must be used as a context manager:DeprecationWarning"),
]

LAST = {"response.completed", "response.incomplete", "response.failed", "error"}


def address(server: Server, path: str = "/v1/responses") -> str:
    return server.url.replace("http", "ws", 1) + path


@pytest.fixture
def socket(server: Server) -> Iterator[ClientConnection]:
    with connect(address(server)) as opened:
        yield opened


def create(socket: ClientConnection, said: Any, **fields: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "input": said, **fields}))


def events(socket: ClientConnection) -> list[dict[str, Any]]:
    """The messages up to the last of a response."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] not in LAST:
        found.append(json.loads(socket.recv(timeout=HANGS_S)))
    return found


def answer(socket: ClientConnection, said: Any, **fields: Any) -> dict[str, Any]:
    """A response that has come to its end."""
    create(socket, said, **fields)
    last = events(socket)[-1]
    assert last["type"] == "response.completed", last
    response: dict[str, Any] = last["response"]
    return response


def text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def test_the_official_client_gets_the_events_of_a_stream(openai_client: openai.OpenAI) -> None:
    said = "Grüße \u2028 🎈"
    with openai_client.responses.connect() as connection:
        connection.response.create(model="default", input=said, tools=[WEATHER])
        over_socket = []
        for event in connection:
            over_socket.append(event)
            if event.type == "response.completed":
                break
    streamed = list(openai_client.responses.create(model="default", input=said, tools=[WEATHER], stream=True))
    assert [event.type for event in over_socket] == [event.type for event in streamed]
    assert [event.sequence_number for event in over_socket if hasattr(event, "sequence_number")] == [
        *range(len(streamed))
    ]
    assert over_socket[-1].response.output_text == said  # type: ignore[union-attr]


async def test_the_official_async_client_calls_a_tool_and_goes_on(server: Server) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model="default", input="weather in Ulm", tools=[WEATHER])
        first = await _ended(connection)
        (call,) = first.output
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        await connection.response.create(
            model="default", previous_response_id=first.id, input=[result], tools=[WEATHER]
        )
        second = await _ended(connection)
    assert second.output_text == "Take a hat: sun"
    computed_is_new(second.to_dict())


async def _ended(connection: Any) -> Any:
    async for event in connection:
        if event.type in LAST:
            return event.response
    raise AssertionError("the connection has ended")


def test_one_socket_carries_a_whole_conversation(socket: ClientConnection) -> None:
    first = answer(socket, "What is 12 * 7?", tools=[CALCULATOR])
    assert text(first) == "That makes 84."
    second = answer(socket, "And then?", previous_response_id=first["id"], tools=[CALCULATOR])
    assert second["previous_response_id"] == first["id"]
    computed_is_new(second)


@pytest.mark.parametrize("first", [{"store": False}, {"generate": False}])
def test_what_is_stored_nowhere_is_gone_on_from_on_its_own_socket(
    server: Server, socket: ClientConnection, first: dict[str, Any]
) -> None:
    begun = answer(socket, "weather in Bonn", tools=[WEATHER], **first)
    assert bool(begun["output"]) == ("generate" not in first)
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "sun"} for item in begun["output"]
    ]
    if not outputs:
        outputs = [{"role": "user", "content": "think"}]
    then = answer(socket, outputs, previous_response_id=begun["id"], tools=[WEATHER], store=False)
    assert text(then) == ("Take a hat: sun" if begun["output"] else "done")
    assert then["previous_response_id"] == begun["id"]
    if begun["output"]:
        computed_is_new(then)
    with connect(address(server)) as other:
        create(other, "more", previous_response_id=then["id"])
        assert events(other)[-1]["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("between", [{"store": False}, {"generate": False}])
def test_what_is_stored_nowhere_has_the_history_of_the_stored_response_before_it(
    socket: ClientConnection, between: dict[str, Any]
) -> None:
    stored = answer(socket, "alpha " * 100)
    second = answer(socket, "two", previous_response_id=stored["id"], **between)
    for word in ("three", "four"):
        next_one = answer(socket, word, previous_response_id=second["id"], store=False)
        assert next_one["previous_response_id"] == second["id"]
        assert next_one["usage"]["input_tokens"] > stored["usage"]["input_tokens"]
        second = next_one


def test_a_past_does_not_grow_beyond_its_limit() -> None:
    said = {"role": "user", "content": "x" * MOST_PAST_BYTES}
    message = {"type": "response.create", "input": "more", "generate": False, "previous_response_id": "resp_1"}
    with pytest.raises(BodyTooLarge):
        read_created(json.dumps(message).encode(), Past("resp_1", None, [said]))


def test_a_request_that_comes_during_a_response_is_answered_after_it(socket: ClientConnection) -> None:
    for word in ("one", "two", "three"):
        create(socket, word)
    answers = [events(socket) for _ in range(3)]
    assert [text(one[-1]["response"]) for one in answers] == ["one", "two", "three"]
    assert all(one[0]["type"] == "response.created" for one in answers)


@pytest.mark.parametrize(
    ("message", "status", "param"),
    [
        ("{", 400, None),
        ("[]", 400, None),
        ('"' + "x" * 100_000, 400, None),
        (b"\xff\xfe", 400, None),
        (json.dumps({"type": "response.steer", "input": "x"}), 400, "type"),
        (json.dumps({"input": "x"}), 400, "type"),
        (json.dumps({"type": "response.create", "input": 1}), 400, "input"),
        (json.dumps({"type": "response.create", "input": "x", "model": "nobody/none", "temperature": 9}), 400, None),
        (json.dumps({"type": "response.create", "input": "x", "previous_response_id": "resp_no"}), 400, None),
        (json.dumps({"type": "response.create", "input": "x", "background": True}), 400, "background"),
        (json.dumps({"type": "response.create", "input": "x", "stream_id": "a"}), 400, "stream_id"),
    ],
)
def test_a_message_that_is_wrong_is_told_and_the_next_one_is_answered(
    socket: ClientConnection, message: str | bytes, status: int, param: str | None
) -> None:
    socket.send(message)
    (told,) = events(socket)
    assert (told["type"], told["status"]) == ("error", status)
    assert told["error"]["message"]
    if param is not None:
        assert told["error"]["param"] == param
    assert text(answer(socket, "still here")) == "still here"


def test_who_sends_too_much_meanwhile_is_closed_with_the_reason(socket: ClientConnection) -> None:
    for _ in range(8):
        create(socket, "slow")
    with contextlib.suppress(ConnectionClosed):
        for _ in socket:
            pass
    assert socket.close_code == 1008


def test_a_response_whose_client_has_gone_is_stopped(server: Server, http: httpx.Client) -> None:
    with connect(address(server)) as socket:
        create(socket, "slow")
        while json.loads(socket.recv(timeout=HANGS_S))["type"] != "response.output_text.delta":
            pass
        created = json.loads(socket.recv(timeout=HANGS_S))
        assert created["type"] == "response.output_text.delta"
    deadline = time.monotonic() + HANGS_S
    while 'tenuto_runs{state="working"} 0' not in http.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_nothing_more_is_done_for_a_client_to_whom_nothing_can_be_sent(tmp_path: Path) -> None:
    """What it sent before that was not answered yet."""
    scope: Scope = {"type": "websocket", "scheme": "ws", "path": "/v1/responses", "query_string": b"", "state": {}}
    scope["headers"], scope["subprotocols"] = [(b"host", b"localhost")], []
    creates = [json.dumps({"type": "response.create", "input": said}) for said in ("one", "two")]
    coming: asyncio.Queue[Message] = asyncio.Queue()
    coming.put_nowait({"type": "websocket.connect"})
    for create in creates:
        coming.put_nowait({"type": "websocket.receive", "text": create})
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if len(sent) > 2:
            raise OSError("the connection is gone")

    settings = Settings(model=(script(tmp_path / "model.json", cells=4096),), data_dir=tmp_path / "data")
    async with opened(settings) as app:
        async with asyncio.timeout(HANGS_S):
            await app.asgi(scope, coming.get, send)
    assert sent == ["websocket.accept", "websocket.send", "websocket.send"]


def test_a_plain_request_is_told_to_open_a_websocket(http: httpx.Client) -> None:
    response = http.get("/v1/responses")
    assert (response.status_code, response.headers["upgrade"]) == (426, "websocket")
    assert response.json()["error"]["code"] == "upgrade_required"


def test_a_websocket_where_there_is_none_is_answered_with_the_dialects_404(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(address(server, "/v1/chat/completions")):
        pass
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["error"]["code"] == "unknown_url"


def test_strange_origins_and_hosts_open_nothing(server: Server) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        with pytest.raises(InvalidStatus) as refused, connect(address(server), additional_headers=headers):
            pass
        assert refused.value.response.status_code in (400, 403)


def test_keys_sockets_shares_large_messages_and_the_drain(start: Start) -> None:
    server = start("--api-key", "a", "--api-key", "b", "--max-body-bytes", "100000")
    with pytest.raises(InvalidStatus) as refused, connect(address(server)):
        pass
    assert refused.value.response.status_code == 401
    key = {"Authorization": "Bearer a"}
    with connect(address(server), additional_headers=key) as socket:
        mine = answer(socket, "hello")
        socket.send("x" * 100_001)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=HANGS_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    with connect(address(server), additional_headers={"Authorization": "Bearer b"}) as socket:
        create(socket, "and?", previous_response_id=mine["id"])
        assert events(socket)[-1]["error"]["code"] == "previous_response_not_found"
        asyncio.run(_all_sockets_of(server, key))
        assert text(answer(socket, "still mine")) == "still mine"
        assert server.stop() == 0
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=HANGS_S)


async def _all_sockets_of(server: Server, key: dict[str, str]) -> None:
    """Open as many as there may be; one of them after the other is refused, as others have a share."""
    tried = [connect_async(address(server), additional_headers=key) for _ in range(64)]
    opened = await asyncio.gather(*tried, return_exceptions=True)
    refused = [one for one in opened if isinstance(one, InvalidStatus)]
    assert refused
    assert {one.response.status_code for one in refused} == {429}
    assert all(int(one.response.headers["retry-after"]) >= 1 for one in refused)
    for one in opened:
        if not isinstance(one, BaseException):
            await one.close()
