"""An agent whose tools its own loop calls: it sends its whole conversation to any server of OpenAI's dialect."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import slow_server

from harness.asking import CHAT, user

ANSWER_TOKENS = 24
CALL_TOKENS = 96
"""Enough for a call that a model with random weights spells letter by letter."""
_FUNCTION = {"name": slow_server.NAME, "description": slow_server.DESCRIPTION, "parameters": slow_server.SCHEMA}
TOOLS = [{"type": "function", "function": {**_FUNCTION, "strict": True}}]


def question(agent: int, turn: int) -> dict[str, str]:
    return user(f"What is {agent + 3} + {turn + 7}?")


_CALL = {
    "type": "object",
    "properties": {"name": {"const": slow_server.NAME}, "arguments": slow_server.SCHEMA},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
_FORM = {"type": "json_schema", "json_schema": {"name": "call", "schema": _CALL, "strict": True}}


@dataclass
class Agent:
    """One conversation; each turn is a forced call, its result and an answer from that.

    `is_random`: no model with random weights makes a call for llama-server, which does not hold its text to one from
    the beginning. There a call is an answer that a schema holds to one, for each server, and its result a message.
    """

    number: int
    latency_s: float = 0.0
    is_random: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def turn(self, client: httpx.AsyncClient, turn: int) -> list[dict[str, Any]]:
        """The server's two answers."""
        self.messages.append(question(self.number, turn))
        result = str(self.number + turn + 10)
        if self.is_random:
            call = await self._ask(client, CALL_TOKENS, {"response_format": _FORM})
            assert json.loads(call["choices"][0]["message"]["content"])["name"] == slow_server.NAME, call
            await asyncio.sleep(self.latency_s)
            self.messages.append(user(f"{slow_server.NAME}: {result}"))
            return [call, await self._ask(client, ANSWER_TOKENS, {})]
        call = await self._ask(client, CALL_TOKENS, {"tools": TOOLS, "tool_choice": "required"})
        calls = call["choices"][0]["message"].get("tool_calls")
        assert calls, call
        await asyncio.sleep(self.latency_s)
        self.messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": result})
        return [call, await self._ask(client, ANSWER_TOKENS, {"tools": TOOLS, "tool_choice": "none"})]

    async def _ask(self, client: httpx.AsyncClient, most: int, more: dict[str, Any]) -> dict[str, Any]:
        body = {"messages": self.messages, "max_tokens": most, "temperature": 0, **more}
        answer: dict[str, Any] = (await client.post(CHAT, json=body)).raise_for_status().json()
        message = answer["choices"][0]["message"]
        self.messages.append({key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)})
        return answer
