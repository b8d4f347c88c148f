"""The server as the simulation's clients see it, over HTTP: the same requests, the same words for what came of them."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx

from tenuto.errors import (
    CommitUnsettled,
    Conflict,
    GenerationFailed,
    SessionPaused,
    ShuttingDown,
    StoreFailed,
    TenutoError,
)
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem
from tests.simulation.server import Reader, Receive, Reply

ERRORS = {one.code: one for one in (CommitUnsettled, GenerationFailed, ShuttingDown, StoreFailed)}
MINE = {"type": "object", "properties": {"w": {"type": "string"}}, "required": ["w"]}
TOOLS = [
    {"type": "mcp", "server_label": "b"},
    {"type": "mcp", "server_label": "g"},
    {"type": "function", "function": {"name": "mine", "parameters": MINE}},
]


@dataclass(frozen=True)
class HttpServer:
    """One process, by its address. `keys` are those of the principals."""

    client: httpx.AsyncClient
    keys: dict[str, str]

    async def chat(self, turn: Turn, gone: Receive, take: Reader | None, dialect: str) -> Reply:
        """A turn. Here it is a chat completion's, whatever its dialect is in the simulation."""
        del dialect
        asking = asyncio.ensure_future(self._chat(turn, take))
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ClientGone
            return await asking
        finally:
            for one in (asking, leaving):
                one.cancel()
            await asyncio.wait({asking, leaving})

    async def _chat(self, turn: Turn, take: Reader | None) -> Reply:
        body = {"messages": [_message(item) for item in turn.items], "tools": TOOLS, "stream": take is not None}
        if turn.session_id is not None:
            body["session_id"] = turn.session_id
        headers = {"X-Tenuto-Events": "1"} if turn.wants_events else {}
        if turn.idempotency_key is not None:
            headers["Idempotency-Key"] = turn.idempotency_key
        if take is None:
            return _reply(await self._send("POST", "/v1/chat/completions", turn.principal.id, body, headers))
        request = self.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers | self._who(turn.principal.id)
        )
        async with request as response:
            if response.status_code != 200:
                await response.aread()
                raise _error(response)
            number = 0
            async for _ in response.aiter_lines():
                number += 1
                await take(number)
        raise ClientGone  # what it was told is of no use to it

    async def decide(self, principal: str, pause: str, *, approve: bool, remember: bool) -> str:
        body = {"decision": "approve" if approve else "deny", "remember_for_session": remember}
        run: str = (await self._send("POST", f"/v1/agent/approvals/{pause}", principal, body))["id"]
        return run

    async def watch(self, principal: str, run_id: str) -> Reply:
        async with self.client.stream("GET", f"/v1/runs/{run_id}/events?after=0", headers=self._who(principal)) as told:
            async for _ in told.aiter_lines():
                pass
        run = await self._send("GET", f"/v1/runs/{run_id}", principal)
        pause = run["pause"] if run["status"] == "paused" else None
        calls = () if pause is None or pause["id"] else tuple(call["id"] for call in pause["calls"])
        asked = None if pause is None else pause["id"]
        return Reply(
            run_id, run["session_id"], run["status"], run["text"], run["stop_reason"], asked, calls, run["error"]
        )

    async def cancel(self, principal: str, run_id: str) -> str:
        status: str = (await self._send("POST", f"/v1/runs/{run_id}/cancel", principal))["status"]
        return status

    async def delete(self, principal: str, id: str) -> None:
        await self._send("DELETE", f"/v1/sessions/{id}", principal)

    async def fork(self, principal: str, id: str, new: str) -> None:
        await self._send("POST", f"/v1/sessions/{id}/fork", principal, {"session_id": new})

    async def export(self, principal: str, id: str) -> dict[str, Any]:
        return await self._send("GET", f"/v1/sessions/{id}", principal)

    async def install(self, principal: str, id: str, document: dict[str, Any]) -> None:
        await self._send("PUT", f"/v1/sessions/{id}", principal, document)

    async def _send(
        self, method: str, path: str, principal: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        response = await self.client.request(method, path, json=body, headers=(headers or {}) | self._who(principal))
        if response.status_code != 200:
            raise _error(response)
        parsed: dict[str, Any] = response.json()
        return parsed

    def _who(self, principal: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[principal]}"}


def _error(response: httpx.Response) -> TenutoError:
    error = response.json()["error"]
    code = error.get("code")
    if response.status_code >= 500 and code not in ERRORS:
        raise AssertionError(f"{response.status_code}: {response.text}")
    if code == SessionPaused.code:
        return SessionPaused("", error["run_id"], error["pause_id"], error["reason"])
    kind = ERRORS.get(code, Conflict)
    return kind(error["message"])


def _message(item: Item) -> dict[str, Any]:
    match item:
        case ToolResultItem():
            return {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
        case AssistantItem():
            return {"role": "assistant", "content": item.text}
    return {"role": "user", "content": item.text}


def _reply(body: dict[str, Any]) -> Reply:
    message, tenuto = body["choices"][0]["message"], body["tenuto"]
    calls = tuple(call["id"] for call in message.get("tool_calls") or ())
    return Reply(
        tenuto["run_id"],
        body["session_id"],
        tenuto["status"],
        message["content"] or "",
        tenuto.get("stop_reason"),
        tenuto.get("approval_id"),
        calls,
        None,
    )
