"""Requests in the shape in which Claude Code sends them: its system blocks, its tools, its markers for caches."""

from typing import Any

HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "x-stainless-lang": "js",
    "x-stainless-retry-count": "0",
    "x-claude-code-session-id": "7f1c/of-this:window",
}
PATH = "/v1/messages?beta=true"
CACHED = {"cache_control": {"type": "ephemeral"}}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{name}: one of the client's own tools. " * 8,
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {name: {"type": "string", "description": name}, **properties},
            "required": [name],
            "additionalProperties": False,
        },
    }


TOOLS = [tool("Bash", timeout={"type": "number"}), tool("Read"), *(tool(f"Tool{number}") for number in range(23))]


def body(messages: list[dict[str, Any]], *, conversation: str, **more: Any) -> dict[str, Any]:
    """A main request. The last block of what is said is marked, and another one in the next turn."""
    return {
        "model": "default",
        "max_tokens": 64000,
        "stream": True,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.330; cch={conversation};"},
            {"type": "text", "text": "You are a coding agent.", **CACHED},
            {"type": "text", "text": "Environment: a temporary repository.", **CACHED},
        ],
        "messages": [*messages[:-1], marked(messages[-1])],
        "tools": TOOLS,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"7f1c"}'},
        **more,
    }


def marked(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose last block is where the client would have its cache end."""
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, **CACHED}]}


def user(*texts: str) -> dict[str, Any]:
    """What a person says, with what the client puts before it."""
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def reminder(text: str) -> dict[str, Any]:
    """A system message after the user's, as it sends its own notes."""
    return {"role": "system", "content": [{"type": "text", "text": text}]}
