"""The results of `chat` and `run_resume`, and of the other own tools, as MCP has them. Pure."""

import json
from collections.abc import Sequence
from typing import Any

import mcp.types as t

from tenuto.runtime.loop.events import Answer
from tenuto.runtime.mcp import chat
from tenuto.runtime.mcp.server_base import failure
from tenuto.sessions.records import RunStatus


def success(structured: dict[str, Any], text: str | None = None) -> t.CallToolResult:
    """A result that programs read as JSON. Where it has a text of its own, the JSON beside it leaves that out."""
    facts = structured if text is None else {key: value for key, value in structured.items() if key != "text"}
    blocks = [json.dumps(facts, ensure_ascii=False)] if text is None else [text, json.dumps(facts, ensure_ascii=False)]
    content: list[t.ContentBlock] = [t.TextContent(type="text", text=block) for block in blocks]
    return t.CallToolResult(content=content, structured_content=structured)


def chat_result(answer: Answer, text: str, calls: Sequence[dict[str, Any]]) -> t.CallToolResult:
    """An answer, with the text and the server's calls that were told since the call began."""
    if answer.status is RunStatus.FAILED:
        failed = f"{answer.error_code or 'internal'}: {answer.error or 'the run failed'}"
        return failure(failed, {"run_id": answer.run_id, "session_id": answer.session_id})
    shown = success(chat.result(answer, text, calls), text)
    if (waiting := chat.waiting(answer)) is not None:
        shown.content.insert(1, t.TextContent(type="text", text=waiting))
    return shown
