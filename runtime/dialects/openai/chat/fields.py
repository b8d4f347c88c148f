"""What chat completions do with each field of a request: serve, ignore or refuse it. docs/openai-chat.md shows these.

A field is refused where leaving it out of account would give another answer than was asked for.
"""

from typing import Any

from tenuto.runtime.dialects.openai.refusals import Refusal
from tenuto.runtime.dialects.openai.sampling import MOST_CHOICES, MOST_TOP_LOGPROBS

SERVED: dict[str, str] = {
    "model": "an id of `/v1/models`; absent or `default`: the first",
    "messages": "roles `system`, `developer`, `user`, `assistant`, `tool`; content as text or as parts",
    "stream": "server-sent events, ended by `[DONE]`",
    "stream_options": "`include_usage`: the figures in a last chunk without choices",
    "temperature": "0 to 2; absent: what suits the model",
    "top_p": "0 to 1",
    "top_k": "local servers' field; 0 and -1 are off",
    "min_p": "local servers' field; 0 to 1",
    "seed": "the same seed and the same request give the same answer; with `n`, answer i has seed + i",
    "stop": "a string or up to 4",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "repetition_penalty": "above 0, up to 10; over the last 64 tokens",
    "repeat_penalty": "llama.cpp's name of `repetition_penalty`",
    "logit_bias": "token ids as strings, -100 to 100; an id that the model does not have is refused",
    "n": f"1 to {MOST_CHOICES}; more than one is stored nowhere, and tools of servers are off",
    "max_tokens": "bounds the run, all rounds together; -1: no limit of the request's own",
    "max_completion_tokens": "the same as `max_tokens`",
    "logprobs": "of the model's own distribution, before bias, penalties and temperature",
    "top_logprobs": f"0 to {MOST_TOP_LOGPROBS}, with `logprobs`",
    "response_format": "`text`, `json_object`, `json_schema`; held by a grammar while the model writes",
    "tools": "`function`: run by the client; `mcp` with `server_label`: the runtime's servers",
    "tool_choice": "`none`, `auto`, `required`, one function, `allowed_tools`",
    "parallel_tool_calls": "false: one call a round",
    "user": "narrows which session a request without `session_id` goes on with",
    "safety_identifier": "as `user`",
    "store": "false: the session is kept in memory only",
    "session_id": "the session; made where there is none. The header `X-Session-Id` does the same",
    "session_mode": "`auto`, `append` or `replace`: how the messages join the session's",
    "max_tool_rounds": "how many rounds of server tools; 0: calls are shown and not made",
    "agent_permission": "`auto`, `ask` or `deny`; tightens what the server allows",
    "match": "`off`: a request without `session_id` begins a session of its own",
}

IGNORED: dict[str, str] = {
    "metadata": "checked and dropped",
    "service_tier": "there is one",
    "reasoning_effort": "models here have no such setting",
    "verbosity": "models here have no such setting",
    "prompt_cache_key": "caches are found by their tokens",
    "prompt_cache_retention": "the runtime decides what is kept",
}


def _given(value: Any) -> bool:
    return value is not None


def _not_empty(value: Any) -> bool:
    return value not in (None, {}, [])


def _not_text_only(value: Any) -> bool:
    return value not in (None, [], ["text"])


REFUSED: dict[str, Refusal] = {
    "grammar": Refusal(_given, "`response_format` with a JSON schema holds the answer to a form"),
    "functions": Refusal(_not_empty, "use `tools`"),
    "function_call": Refusal(_given, "use `tool_choice`"),
    "audio": Refusal(_given, "answers are text"),
    "modalities": Refusal(_not_text_only, "answers are text"),
    "prediction": Refusal(_given, "there is no decoding from predictions"),
    "web_search_options": Refusal(_given, "an MCP server can search"),
    "chat_template_kwargs": Refusal(_not_empty, "a template has its own defaults"),
}
"""Fields that would change the answer and are not served."""

REFUSED_OF_MCP_TOOLS = ("server_url", "connector_id", "headers", "authorization")
"""Servers come from the runtime's configuration alone, never from a request."""
