"""What honest clients ask for, in every dialect: the requests with which hostile ones begin."""

import json
import random
import re
from collections import deque
from typing import Any, NamedTuple

from tests.dialects.wire_pairs import PAIRS

_ID = re.compile(rb"\b(resp|conv|run|appr|mcpr|msg|fc|rs|mcp|call)_[0-9a-z]{24,}\b")
_MOST_IDS = 16


class Asked(NamedTuple):
    """A request. `{resp}` in its path or body is an id of that kind which the server has told."""

    method: str
    path: str
    body: Any = None


class Told:
    """Ids that the server has told to any of its clients, so that what they ask for is there, and asked for at once."""

    def __init__(self) -> None:
        self._ids: dict[str, deque[str]] = {}

    def learn(self, said: bytes) -> None:
        """Remember the ids in what the server has said."""
        for found in set(_ID.finditer(said)):
            kind = "item" if found[1] in (b"msg", b"fc", b"rs", b"mcp") else found[1].decode()
            self._ids.setdefault(kind, deque(maxlen=_MOST_IDS)).append(found[0].decode())

    def put(self, text: str, chance: random.Random) -> str:
        """A text with ids in place of their kinds."""
        return re.sub(r"\{([a-z]+)\}", lambda kind: chance.choice([*self._ids.get(kind[1], ()), "nobodys"]), text)


_SAID = [{"role": "user", "content": "hello"}]
_FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}
_ASKS = {"type": "mcp", "server_label": "calculator", "require_approval": "always"}
_RESULT = {"type": "function_call_output", "call_id": "{call}", "output": "42"}

BY_HAND = [
    Asked("POST", "/v1/chat/completions", {"messages": _SAID}),
    Asked("POST", "/v1/chat/completions", {"messages": _SAID, "stream": True, "max_tokens": 50}),
    Asked(
        "POST",
        "/v1/chat/completions",
        {"messages": _SAID, "session_id": "one", "tools": [{"type": "function", "function": _FUNCTION}]},
    ),
    Asked(
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "tool"}], "session_id": "two", "stream": True},
    ),
    Asked("POST", "/v1/chat/completions", {"messages": _SAID, "session_id": "{conv}", "agent_permission": "ask"}),
    Asked("POST", "/v1/chat/completions/input_tokens", {"messages": _SAID, "session_id": "one"}),
    Asked("POST", "/completion", {"prompt": ["hello", [1, "a"]], "n_predict": 3, "stream": True}),
    Asked("POST", "/apply-template", {"messages": _SAID, "session_id": "one"}),
    Asked("POST", "/v1/completions", {"prompt": "hello", "max_tokens": 3, "stream": True}),
    Asked("POST", "/v1/responses", {"input": "hello", "conversation": "{conv}", "stream": True}),
    Asked("POST", "/v1/responses", {"input": "tool", "conversation": "{conv}"}),
    Asked("POST", "/v1/responses", {"input": "long", "background": True}),
    Asked("POST", "/v1/responses", {"input": "long", "background": True, "conversation": "{conv}"}),
    Asked("POST", "/v1/responses", {"input": "long", "stream": True, "background": True}),
    Asked("POST", "/v1/responses", {"input": "ask", "tools": [{"type": "function", **_FUNCTION}], "background": True}),
    Asked("POST", "/v1/responses", {"input": "ask", "tools": [{"type": "function", **_FUNCTION}], "store": False}),
    Asked("POST", "/v1/responses", {"input": "tool", "tools": [_ASKS]}),
    Asked("POST", "/v1/responses", {"input": "tool", "tools": [_ASKS], "background": True, "conversation": "{conv}"}),
    Asked("POST", "/v1/responses", {"input": [_RESULT], "previous_response_id": "{resp}"}),
    Asked("POST", "/v1/responses", {"input": "more", "previous_response_id": "{resp}", "instructions": "Be brief."}),
    Asked("POST", "/v1/responses", {"input": "long", "previous_response_id": "{resp}", "stream": True}),
    Asked(
        "POST",
        "/v1/responses",
        {
            "input": [{"type": "mcp_approval_response", "approval_request_id": "{mcpr}", "approve": True}],
            "tools": [_ASKS],
        },
    ),
    Asked("POST", "/v1/responses/input_tokens", {"input": "hello", "previous_response_id": "{resp}"}),
    Asked("POST", "/v1/responses/input_tokens", {"input": "hello", "conversation": "{conv}"}),
    Asked("GET", "/v1/responses"),
    Asked("GET", "/v1/responses/{resp}"),
    Asked("GET", "/v1/responses/{resp}?stream=true"),
    Asked("GET", "/v1/responses/{resp}?stream=true&starting_after=3"),
    Asked("GET", "/v1/responses/{resp}/input_items?limit=1&order=asc&after={item}"),
    Asked("POST", "/v1/responses/{resp}/cancel"),
    Asked("DELETE", "/v1/responses/{resp}"),
    Asked("POST", "/v1/conversations", {"items": _SAID, "metadata": {"a": "b"}}),
    Asked("GET", "/v1/conversations/{conv}"),
    Asked("POST", "/v1/conversations/{conv}", {"metadata": {"a": "c"}}),
    Asked("DELETE", "/v1/conversations/{conv}"),
    Asked("GET", "/v1/conversations/{conv}/items?limit=2"),
    Asked("GET", "/v1/conversations/{conv}/items?order=asc&after={item}"),
    Asked("POST", "/v1/conversations/{conv}/items", {"items": [*_SAID, {"role": "assistant", "content": "yes"}]}),
    Asked("POST", "/v1/conversations/{conv}/items", {"items": [_RESULT]}),
    Asked("GET", "/v1/conversations/{conv}/items/{item}"),
    Asked("DELETE", "/v1/conversations/{conv}/items/{item}"),
    Asked("POST", "/v1/messages", {"model": "default", "max_tokens": 50, "messages": _SAID, "stream": True}),
    Asked("POST", "/v1/rerank", {"query": "a b", "documents": ["a", {"text": "b c"}], "top_n": 1}),
    Asked("POST", "/v1/embeddings", {"input": ["a", "b"] * 40}),
    Asked("GET", "/api/version"),
    Asked("GET", "/api/tags"),
    Asked("GET", "/api/ps"),
    Asked("POST", "/api/generate", {"prompt": "long"}),
    Asked("GET", "/props"),
    Asked("GET", "/slots"),
    Asked(
        "PUT",
        "/v1/sessions/one",
        {
            "version": 1,
            "created_at": 0,
            "updated_at": 0,
            "items": [{"kind": "user", "text": "a", "attachments": []}],
        },
    ),
    Asked("POST", "/v1/sessions/{conv}/fork", {"at": 0, "session_id": "three"}),
    Asked("GET", "/v1/sessions"),
    Asked("GET", "/v1/sessions/{conv}"),
    Asked("DELETE", "/v1/sessions/two"),
    Asked("GET", "/v1/runs/{run}"),
    Asked("GET", "/v1/runs/{run}/events?after=0"),
    Asked("POST", "/v1/runs/{run}/cancel"),
    Asked("POST", "/v1/agent/approvals/{appr}", {"decision": "approve"}),
    Asked(
        "POST",
        "/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "chat", "arguments": {"message": "hello"}},
        },
    ),
    Asked("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    Asked("GET", "/v1/models"),
    Asked("OPTIONS", "/v1/models"),
    Asked("GET", "/metrics"),
    Asked("GET", "/openapi.json"),
    Asked("GET", "/nowhere"),
]


def _recorded() -> list[Asked]:
    pairs = [json.loads(path.read_text()) for path in PAIRS]
    return [Asked("POST", pair["path"], pair["request"]) for pair in pairs]


RECORDED = _recorded()
