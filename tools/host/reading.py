"""Messages as servers write them: bounded, read in a thread where large, and answered where they cannot be read."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from tenuto.json_bounds import has_at_most
from tenuto.tools.host.transport import RequestId, received

MOST_BYTES = 16 * 2**20
"""Of a message that is read: twice what is kept of a result."""
MOST_VALUES = 50_000
"""JSON values of one message. The SDK looks at each of them on the event loop."""
MOST_PARTS = 1_000
"""Parts of one result's content, which cost many times as much."""
LARGE_BYTES = 64 << 10
"""A message of this size or more is read in a thread."""

_ENVELOPE_BYTES = 1_000
"""How much of either end of a message is searched for its id."""
_MEMBER = rb'"(jsonrpc|id|method)"\s*:\s*("[^"\\]*"|-?\d+)'
_HEAD = re.compile(rb"\s*\{(?:\s*" + _MEMBER + rb"\s*,)+")
_TAIL = re.compile(rb"(?:,\s*" + _MEMBER + rb"\s*)+\}\s*\Z")
_MEMBERS = re.compile(_MEMBER)

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH.replace(b"{2}", b"[0-9a-fA-F]") + rb")" + _LOW)


T = TypeVar("T")


class _Unreadable(Exception):
    """Why a message cannot be read, in words."""


async def understood(data: bytes) -> SessionMessage | None:
    """What a server wrote, as the SDK shall see it; None where it is no message.

    An answer that cannot be read is an error that says so, and answers the same request: nobody waits for it in vain.
    """
    return await _done(_understood, data, None)


async def readable(data: bytes, request: RequestId | None = None) -> bytes | None:
    """What a server wrote, as text that the SDK can read itself at little cost; None where it is no message.

    `request` is the one that is answered by what cannot be read and shows no id.
    """
    return await _done(_readable, data, request)


def unreadable(request: RequestId, why: str) -> JSONRPCError:
    """The answer to a request whose own answer is not read. Its words are for the model."""
    error = ErrorData(code=INTERNAL_ERROR, message=f"the answer cannot be read: {why}")
    return JSONRPCError(jsonrpc="2.0", id=request, error=error)


async def _done(read: Callable[[bytes, RequestId | None], T], data: bytes, request: RequestId | None) -> T:
    if len(data) < LARGE_BYTES:
        return read(data, request)
    return await anyio.to_thread.run_sync(read, data, request)


def _understood(data: bytes, request: RequestId | None) -> SessionMessage | None:
    try:
        return received(_read(data))
    except _Unreadable as exc:
        message = _in_place_of(data, str(exc), request)
        return None if message is None else SessionMessage(message)


def _readable(data: bytes, request: RequestId | None) -> bytes | None:
    try:
        message: JSONRPCMessage | None = _read(data)
    except _Unreadable as exc:
        message = _in_place_of(data, str(exc), request)
    return None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _read(data: bytes) -> JSONRPCMessage:
    if len(data) > MOST_BYTES:
        raise _Unreadable(f"it has more than {MOST_BYTES} bytes")
    if not has_at_most(data, MOST_VALUES):
        raise _Unreadable(f"it has more than {MOST_VALUES} JSON values")
    try:
        message = jsonrpc_message_adapter.validate_python(_value(data), by_name=False)
    except ValidationError as exc:
        raise _Unreadable("it is not a JSON-RPC message") from exc
    if isinstance(message, JSONRPCResponse):
        parts = message.result.get("content")
        if isinstance(parts, list) and len(parts) > MOST_PARTS:
            raise _Unreadable(f"it has {len(parts)} parts of content, of which there may be {MOST_PARTS}")
    return message


def _value(data: bytes) -> Any:
    """The JSON value. Half a character, as text has that was cut between two of them, is read as U+FFFD."""
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        return from_json(_whole(data))
    except ValueError as exc:
        raise _Unreadable(f"it is not valid JSON: {exc}") from exc


def _whole(data: bytes) -> bytes:
    """The text without lone surrogates and without bytes that are no UTF-8."""
    # A backslash that is escaped begins no escape. NUL stands for it meanwhile, as JSON has no such byte.
    text = data.replace(b"\0", b" ").replace(rb"\\", b"\0")
    return _LONE.sub(rb"\\ufffd", text).replace(b"\0", rb"\\").decode(errors="replace").encode()


def _in_place_of(data: bytes, why: str, request: RequestId | None) -> JSONRPCMessage | None:
    """What stands for a message that is not read: an error for an answer, the bare request for a request."""
    members = _envelope(data)
    id, method = members.get(b"id"), members.get(b"method")
    if isinstance(method, str):
        return JSONRPCRequest(jsonrpc="2.0", id=id, method=method) if isinstance(id, str | int) else None
    answered = id if isinstance(id, str | int) else request
    return None if answered is None else unreadable(answered, why)


def _envelope(data: bytes) -> dict[bytes, Any]:
    """The plain members at either end of a message. Those there belong to itself, not to what it carries."""
    found = (_HEAD.match(data[:_ENVELOPE_BYTES]), _TAIL.search(data[-_ENVELOPE_BYTES:]))
    members = [pair for match in found if match for pair in _MEMBERS.findall(match[0])]
    return {name: from_json(_whole(value)) for name, value in members}
