"""What chat completions do with each field of a request: serve, ignore or refuse it. docs/openai-chat.md shows these.

A field is refused where leaving it out of account would give another answer than was asked for.
"""

from typing import Any

from tenuto.pipelines.template_variables import MOST_CHARACTERS
from tenuto.runtime.dialects import priorities
from tenuto.runtime.dialects.openai.sampling import MOST_CHOICES, MOST_STOPS, MOST_TOP_LOGPROBS, TIERS
from tenuto.runtime.dialects.refusals import Refusal
from tenuto.sessions.ids import MOST_USER_CHARACTERS

SERVED: dict[str, str] = {
    "model": "an id from `/v1/models`; if absent or `default`, the first model",
    "messages": "roles `system`, `developer`, `user`, `assistant`, `tool`; content as text or as parts",
    "stream": "server-sent events, ended by `[DONE]`",
    "stream_options": "`include_usage`: the figures in a last chunk without choices",
    "temperature": "0 to 2; if absent, a default that suits the model",
    "top_p": "0 to 1",
    "top_k": "a common extension of local servers; 0 or -1 turns it off",
    "min_p": "a common extension of local servers; 0 to 1",
    "seed": "the same seed and the same request give the same answer; with `n`, answer i has seed + i",
    "stop": f"a string, or up to {MOST_STOPS}",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "repetition_penalty": "up to 10, over the last 64 tokens; 0 or 1 turns it off",
    "repeat_penalty": "llama.cpp's name for `repetition_penalty`",
    "logit_bias": "token ids as strings, -100 to 100; ids outside the vocabulary are refused",
    "n": f"1 to {MOST_CHOICES}; with more than one, nothing is stored and server tools are off",
    "max_tokens": "limits the answer, all its rounds together; -1 or 0: the server's own limit",
    "max_completion_tokens": "the same as `max_tokens`",
    "logprobs": "from the model's own distribution, before bias, penalties and temperature",
    "top_logprobs": f"0 to {MOST_TOP_LOGPROBS}, with `logprobs`",
    "response_format": "`text`, `json_object`, `json_schema`; enforced by a grammar while the model writes",
    "json_schema": "llama.cpp's name for a schema that the answer follows; `schema` of a `json_object` is the same",
    "tools": "`function`: run by the client; `mcp` with `server_label`: run by the server; other types are left out",
    "tool_choice": "`none`, `auto`, `required`, one function, `allowed_tools`",
    "parallel_tool_calls": "false: at most one call per round",
    "continue_final_message": "whether a last message of the assistant begins the answer, which brings what comes after"
    " it; if absent, it does",
    "add_generation_prompt": "false only with `continue_final_message`, and true only without",
    "reasoning_effort": "`none` turns reasoning off and others on, where the model's chat template has a switch for it;"
    " the word itself is for templates that look at it",
    "chat_template_kwargs": "variables of the model's chat template, such as `enable_thinking`: JSON of up to"
    f" {MOST_CHARACTERS} characters; they count more than `reasoning_effort`",
    "max_thinking_tokens": "the most tokens of reasoning for one request, all its rounds together, after which it is"
    " closed; -1: no such limit",
    "thinking_budget_tokens": "llama-server's name for `max_thinking_tokens`",
    "reasoning_budget_tokens": "another of its names",
    "user": f"narrows which session a request without `session_id` continues; up to {MOST_USER_CHARACTERS} characters",
    "safety_identifier": "the same as `user`",
    "store": "false: a new session is kept in memory only; refused where the session is kept otherwise",
    "session_id": "the session to continue; created if it does not exist. The header `X-Tenuto-Session` does the same",
    "session_mode": "`auto`, `append` or `replace`: how the messages join the session's",
    "max_tool_rounds": "limit on rounds with server tools; 0: calls are reported but not made",
    "agent_permission": "`auto`, `ask` or `deny`; can only tighten what the server allows",
    "prompt_cache_key": "a hint that decides where several sessions fit the history; never an error",
    "roots": "folders that the session works in, as paths or `file://` URIs, for MCP servers that ask; from this"
    " machine's own user alone",
    "service_tier": TIERS,
    "priority": f"{priorities.SERVED}{priorities.NUMBERS}",
    "match": "`off`: a request without `session_id` always starts a new session",
}

IGNORED: dict[str, str] = {
    "metadata": "the runtime has no use for it",
    "verbosity": "the models have no such setting",
    "prompt_cache_retention": "the runtime decides what is kept",
}


def _given(value: Any) -> bool:
    return value is not None


def _not_empty(value: Any) -> bool:
    return value not in (None, {}, [])


def _not_text_only(value: Any) -> bool:
    return value not in (None, [], ["text"])


REFUSED: dict[str, Refusal] = {
    "grammar": Refusal(_given, "use `response_format` with a JSON schema"),
    "functions": Refusal(_not_empty, "use `tools`"),
    "function_call": Refusal(_given, "use `tool_choice`"),
    "audio": Refusal(_given, "answers are text"),
    "modalities": Refusal(_not_text_only, "answers are text"),
    "prediction": Refusal(_given, "predicted outputs are not implemented"),
}
"""Fields that would change the answer and are not served."""

LEFT_OUT: dict[str, Refusal] = {
    "web_search_options": Refusal(_given, "an MCP server can search"),
}
"""Fields that would change the answer, and without which clients can do: the answer's diagnostics tell of them."""

REFUSED_OF_MCP_TOOLS = ("server_url", "connector_id", "headers", "authorization")
"""Servers come from the runtime's configuration alone, never from a request."""
