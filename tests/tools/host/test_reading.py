"""Messages of servers: what is read of them, what is not, and what stands in place of it."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from tenuto.tools.host import reading
from tenuto.tools.host.reading import understood, unreadable

pytestmark = pytest.mark.asyncio

DEEP = "[" * 1000 + "]" * 1000
NOT_DEEP = "it is not valid JSON: recursion limit exceeded at line 1 column"


async def read(text: str | bytes) -> JSONRPCMessage | None:
    message = await understood(text.encode() if isinstance(text, str) else text)
    return None if message is None else message.message


async def read_text(text: bytes) -> object:
    """What is read of a text in a result, given as it is written in JSON."""
    message = await read(b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "' + text + b'"}}')
    assert isinstance(message, JSONRPCResponse)
    return message.result["text"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"\ude00 first", "\ufffd first"),
        (rb"\uD83D\ud83d\uDE00\ude00", "\ufffd\U0001f600\ufffd"),
        (rb"C:\\ud83d \\\ud83d", "C:\\ud83d \\\ufffd"),
        (b"gr\xfc\xdf", "gr\ufffd\ufffd"),
    ],
)
async def test_half_a_character_is_read_as_the_sign_of_one_that_is_lost(written: bytes, meant: str) -> None:
    assert await read_text(written) == meant


@given(st.text(st.sampled_from("a\\\ud83d\ude00\n\0ü"), max_size=12))
async def test_whatever_json_writers_write_of_a_text_is_read(text: str) -> None:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert await read_text(json.dumps(text)[1:-1].encode()) == whole


@pytest.mark.parametrize(
    "message",
    [
        f'{{"jsonrpc":"2.0","id":"a-1","result":{{"content":{DEEP}}}}}',
        f'{{"id": "a-1", "jsonrpc": "2.0", "error": {DEEP}}}',
        f'{{"result": {{"id": 9, "content": {DEEP}}}, "jsonrpc": "2.0", "id": "a-1"}}\r',
        f'{{"jsonrpc": "2.0", "result": {{"id": 9, "content": {DEEP}, "id": 9}}, "id": "a-1"}}',
    ],
)
async def test_an_answer_that_cannot_be_read_answers_its_request_wherever_the_id_stands(message: str) -> None:
    answer = await read(message)
    assert isinstance(answer, JSONRPCError)
    assert answer.id == "a-1"
    assert answer.error.message.startswith(f"the answer cannot be read: {NOT_DEEP}")


async def test_a_request_that_cannot_be_read_is_one_without_its_parameters_so_that_it_is_answered() -> None:
    message = f'{{"jsonrpc": "2.0", "id": 4, "method": "sampling/createMessage", "params": {DEEP}}}'
    assert await read(message) == JSONRPCRequest(jsonrpc="2.0", id=4, method="sampling/createMessage")


@pytest.mark.parametrize(
    "line", ["this is none", "[]", "7", '{"level": "info"}', f'{{"jsonrpc": "2.0", "method": "a", "params": {DEEP}}}']
)
async def test_what_asks_nothing_and_answers_nothing_is_no_message(line: str) -> None:
    assert await read(line) is None


async def test_a_message_is_refused_by_the_name_of_the_limit_that_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 2**10)
    monkeypatch.setattr(reading, "MOST_VALUES", 10)
    form = '{{"jsonrpc": "2.0", "id": 1, "result": {{"content": {}}}}}'
    assert await read(form.format([0] * 20)) == unreadable(1, "it has more than 10 JSON values")
    assert await read(form.format(" " * 2**10 + "[]")) == unreadable(1, "it has more than 1024 bytes")


async def test_a_large_message_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    monkeypatch.setattr(reading, "received", lambda _: threads.append(threading.current_thread()))
    for characters in (1, reading.LARGE_BYTES):
        await understood(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * characters}}).encode())
    small, large = threads
    assert small is threading.current_thread()
    assert large is not small
