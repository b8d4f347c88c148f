"""What messages do with each field of a request: serve, ignore or refuse it. docs/anthropic-messages.md shows these.

A field is refused where leaving it out of account would give another answer than was asked for.
"""

from typing import Any

from tenuto.runtime.dialects import priorities
from tenuto.runtime.dialects.anthropic.messages.wire import MOST_STOPS
from tenuto.runtime.dialects.refusals import Refusal
from tenuto.sessions.ids import MOST_USER_CHARACTERS

SERVED: dict[str, str] = {
    "model": "an id from `/v1/models`; if absent or `default`, the first model",
    "messages": "roles `user`, `assistant` and `system`; content as text or as blocks",
    "system": "text or text blocks, which are paragraphs; a first line `x-anthropic-billing-header:` is left out",
    "max_tokens": "limits the whole run, all rounds together; more than fits the context is cut to what fits",
    "stream": "server-sent events, as Anthropic has them",
    "stop_sequences": f"up to {MOST_STOPS}; `stop_sequence` names the one that was found",
    "temperature": "0 to 2; if absent, a default that suits the model",
    "top_p": "0 to 1",
    "top_k": "0 or -1 turns it off",
    "tools": "with `input_schema`: run by the client; `mcp_toolset`: tools of a server in `mcp_servers`",
    "tool_choice": "`auto`, `any`, `tool`, `none`; `disable_parallel_tool_use`: at most one call per round",
    "mcp_servers": "servers of the configuration, by `name`; others by `url`, as `--egress` allows",
    "thinking": "whether the model reasons, where its chat template has a switch for it, and whether that is shown;"
    " `budget_tokens` are the most tokens of reasoning for one request, after which it is closed",
    "metadata": f"`user_id` narrows which session a request continues; up to {MOST_USER_CHARACTERS} characters",
    "output_config": "`format`, a JSON schema, is enforced by a grammar while the model writes; `effort` is for chat"
    " templates that look at it",
    "output_format": "the older name of `output_config.format`",
    "store": "Tenuto's: false keeps a new session in memory only; refused where the session is kept otherwise",
    "max_tool_rounds": "Tenuto's: limit on rounds with server tools; 0: calls are reported but not made",
    "agent_permission": "Tenuto's: `auto`, `ask` or `deny`; can only tighten what the server allows",
    "service_tier": "`auto` and `standard_only`, which are the same here; `priority` says what may wait",
    "priority": f"{priorities.SERVED}{priorities.NUMBERS}",
    "match": "Tenuto's: `off`: a request without `X-Tenuto-Session` always starts a new session",
}

IGNORED: dict[str, str] = {
    "cache_control": "caches are found by their tokens, wherever a client marks them",
    "context_management": "the history is what the client sends",
    "container": "there are no containers",
    "diagnostics": "`usage` and `tenuto` say what was cached, and why not",
    "speed": "there is only one",
    "inference_geo": "the model runs here",
    "billing_policy": "nothing is billed",
    "fallbacks": "the model that is named answers",
    "fallback_credit_token": "nothing is billed",
    "betas": "what a beta adds is served or not, whether it is named or not",
}


def _given(value: Any) -> bool:
    return value is not None


REFUSED: dict[str, Refusal] = {
    "thread": Refusal(_given, "send the whole conversation, or name a session in the header X-Tenuto-Session"),
    "compaction": Refusal(_given, "summarize the conversation in a request of its own"),
}
"""Fields that would change the answer and are not served."""
