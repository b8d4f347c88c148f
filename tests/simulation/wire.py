"""Turns as clients of the dialects send them: through a dialect's own endpoint, in the same process and time."""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tenuto.runtime.dialects.headers import EVENTS_HEADER, IDEMPOTENCY_HEADER, SESSION_HEADER
from tenuto.runtime.dialects.openai.chat.endpoint import ChatCompletions
from tenuto.runtime.dialects.openai.responses.endpoint import Responses
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.runner import Runner
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, ToolSpec, UserItem

if TYPE_CHECKING:
    from tests.simulation.play import Play

KEEP_ALIVE_S = 15.0


class Noted:
    """A follower whose leaving is noted, as the server's other readers' is."""

    def __init__(self, follower: Follower, leaves: Callable[[Follower], Awaitable[None]]) -> None:
        self.follower, self._leaves = follower, leaves

    def __getattr__(self, name: str) -> Any:
        return getattr(self.follower, name)

    async def disconnected(self) -> None:
        await self._leaves(self.follower)


class NotedLoop:
    """The loop as an endpoint has it. `answers` is what the endpoint answers from."""

    def __init__(self, runner: Runner, begins: Callable[[Follower], Callable[[Follower], Awaitable[None]]]) -> None:
        self._runner, self._begins = runner, begins
        self.answers: Noted | PastLeg | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def start(self, turn: Turn) -> Any:
        return self._noted(await self._runner.start(turn))

    async def leg(self, *arguments: Any) -> Any:
        return self._noted(await self._runner.leg(*arguments))

    def _noted(self, leg: Follower | PastLeg) -> Noted | PastLeg:
        self.answers = Noted(leg, self._begins(leg)) if isinstance(leg, Follower) else leg
        return self.answers


async def ask(
    play: "Play",
    dialect: str,
    loop: NotedLoop,
    turn: Turn,
    gone: Callable[[], Awaitable[Message]],
    take: Callable[[int], Awaitable[None]] | None,
) -> None:
    """Send a turn, streamed where the client reads events. Raises what the endpoint does, and ClientGone."""
    form = _chat(turn) if dialect == "chat" else _responses(turn)
    answer = _Answer(take)
    body = [{"type": "http.request", "body": json.dumps({**form, "stream": take is not None}).encode()}]

    async def receive() -> Message:
        return body.pop() if body else await gone()

    request = Request(_scope(turn), receive)
    endpoint: Any = ChatCompletions if dialect == "chat" else Responses
    response: Response = await endpoint(loop, KEEP_ALIVE_S).create(request)
    await response(request.scope, receive, answer.send)
    if not answer.is_whole:
        raise ClientGone
    if take is None and answer.status == 200 and loop.answers is not None:
        told, is_so = answer.text(dialect), loop.answers.snapshot().text
        if told != is_so:
            play.wrong(f"a client of {dialect} was told {told!r} where the run says {is_so!r}")


class _Answer:
    def __init__(self, take: Callable[[int], Awaitable[None]] | None) -> None:
        self._take = take
        self._body = b""
        self.status, self.is_whole = 0, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self._body += message.get("body", b"")
        self.is_whole = not message.get("more_body", False)
        if self._take is not None and not self.is_whole:
            await self._take(self._body.count(b"\n\n"))

    def text(self, dialect: str) -> str:
        whole = json.loads(self._body)
        if dialect == "chat":
            return whole["choices"][0]["message"]["content"] or ""
        parts = [part for item in whole["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(part["text"] for part in parts)


def _scope(turn: Turn) -> dict[str, Any]:
    given = {
        SESSION_HEADER: turn.session_id,
        IDEMPOTENCY_HEADER: turn.idempotency_key,
        EVENTS_HEADER: "1" if turn.wants_events else None,
    }
    headers = [(name.encode(), value.encode()) for name, value in given.items() if value is not None]
    state = {"principal": turn.principal}
    return {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers, "state": state}


def _chat(turn: Turn) -> dict[str, Any]:
    functions = [{"type": "function", "function": _function(tool)} for tool in turn.tools.client]
    return {"messages": [*map(_message, turn.items)], "tools": [*functions, *_servers(turn)]}


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }


def _message(item: Item) -> dict[str, Any]:
    match item:
        case UserItem():
            return {"role": "user", "content": item.text}
        case AssistantItem():
            return {"role": "assistant", "content": item.text}
        case ToolResultItem():
            return {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
    raise AssertionError(f"no client sends {item}")


def _responses(turn: Turn) -> dict[str, Any]:
    functions = [{"type": "function", **_function(tool)} for tool in turn.tools.client]
    return {"input": [*map(_input, turn.items)], "tools": [*functions, *_servers(turn)]}


def _input(item: Item) -> dict[str, Any]:
    if isinstance(item, ToolResultItem):
        return {"type": "function_call_output", "call_id": item.call_id, "output": item.text}
    return _message(item)


def _servers(turn: Turn) -> list[dict[str, Any]]:
    return [{"type": "mcp", "server_label": label, "require_approval": "never"} for label in turn.tools.servers]
