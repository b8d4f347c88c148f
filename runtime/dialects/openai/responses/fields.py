"""What responses do with each field of a request: serve, ignore or refuse it. docs/openai-responses.md shows these.

A field is refused where leaving it out of account would give another answer than was asked for.
"""

from typing import Any

from tenuto.runtime.dialects import priorities
from tenuto.runtime.dialects.openai.sampling import MOST_TOP_LOGPROBS, TIERS
from tenuto.runtime.dialects.refusals import Refusal

SERVED: dict[str, str] = {
    "model": "an id from `/v1/models`; if absent or `default`, the first model",
    "input": "a text, or items: messages, calls and their outputs, reasoning, and those of MCP tools;"
    " with `conversation`, it may be left out",
    "instructions": "a system message before the input, for this response alone",
    "previous_response_id": "what was said up to its end comes before the input; an unknown one is an error",
    "conversation": "the id of a conversation, to whose end the input is added; an unknown one is an error",
    "background": "the response goes on without its client, which reads it by its id; not with `store` false",
    "tools": "`function`, `custom` and `namespace`: run by the client; `mcp`: run by the server, which has it by its"
    " `server_label` or is given its `server_url`",
    "tool_choice": "`none`, `auto`, `required`, one function, custom or MCP tool, `allowed_tools`",
    "parallel_tool_calls": "false: at most one call per round",
    "stream": "server-sent events; a silent stream sends `keepalive` events, which have a `sequence_number`",
    "max_output_tokens": "limits the answer, all its rounds together; -1: the server's own limit",
    "max_tool_calls": "limits the rounds with server tools; calls of one round count as one",
    "temperature": "0 to 2; if absent, a default that suits the model",
    "top_p": "0 to 1",
    "top_logprobs": f"0 to {MOST_TOP_LOGPROBS}; gives logprobs, as `include` does",
    "include": "`message.output_text.logprobs`; others are ignored",
    "text": "`format`: `text`, `json_object` or `json_schema`, enforced by a grammar while the model writes",
    "reasoning": "`effort` `none` turns reasoning off and others on, where the model's chat template has a switch for"
    " it; the word itself is for templates that look at it; `summary` is ignored",
    "max_thinking_tokens": "the most tokens of reasoning for one request, all its rounds together, after which it is"
    " closed; -1: no such limit",
    "chat_template_kwargs": "variables of the model's chat template by their names, such as `enable_thinking`",
    "store": "false: no response is kept, and a new session in memory only; it is found by its history all the same",
    "user": "narrows which session a request continues",
    "safety_identifier": "the same as `user`",
    "metadata": "up to 16 texts by their names, of up to 512 and 64 characters, which come back with the response",
    "service_tier": TIERS,
    "priority": f"{priorities.SERVED}{priorities.NUMBERS}; if both are absent, `background` decides",
    "prompt_cache_key": "a hint that decides where several sessions fit the history; never an error",
}

IGNORED: dict[str, str] = {
    "stream_options": "streams are not obfuscated",
    "prompt_cache_retention": "the runtime decides what is kept",
    "prompt_cache_options": "the runtime decides what is kept",
    "client_metadata": "the runtime has no use for it",
    "context_management": "nothing is compacted by itself",
}


def _auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _given(value: Any) -> bool:
    return value is not None


LEFT_OUT: dict[str, Refusal] = {
    "truncation": Refusal(_auto, "nothing is left out of a conversation: one that is too long is an error"),
}
"""Fields that clients set and can do without: when one is used, the response's `tenuto.diagnostics` says so."""

REFUSED: dict[str, Refusal] = {
    "prompt": Refusal(_given, "prompt templates are not kept here; use `instructions` and `input`"),
    "moderation": Refusal(_given, "nothing is moderated"),
}
"""Fields that would change the answer and are not served."""

REFUSED_OF_MCP_TOOLS = ("connector_id", "tunnel_id")
"""Ways to servers that lead through OpenAI."""
