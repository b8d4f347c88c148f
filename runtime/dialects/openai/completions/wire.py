"""What OpenAI's text completions requests look like on the wire, and what becomes of each field. No meaning.

https://platform.openai.com/docs/api-reference/completions/create
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tenuto.runtime.dialects.openai.sampling import (
    MOST_CHOICES,
    MOST_TOP_LOGPROBS,
    TIERS,
    Limit,
    SamplingFields,
    ServiceTier,
)
from tenuto.runtime.dialects.openai.texts import Ids, as_texts
from tenuto.runtime.dialects.priorities import Urgency
from tenuto.runtime.dialects.refusals import Refusal

MOST_COMPLETIONS = 64
"""How many texts one request may ask for: prompts times `n`."""
DEFAULT_TOKENS = 16


Prompts = Annotated[list[str | Ids], Field(min_length=1, max_length=MOST_COMPLETIONS)]


class CompletionBody(SamplingFields):
    """A text completions request. None: not said."""

    prompt: Annotated[Prompts, BeforeValidator(as_texts, json_schema_input_type=str | Ids | Prompts)]
    max_tokens: Limit | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    service_tier: ServiceTier | None = None
    priority: Urgency | None = None


SERVED: dict[str, str] = {
    "model": "as for chat",
    "prompt": f"a string, token ids, or a list of either; at most {MOST_COMPLETIONS} texts, prompts times `n`",
    "stream": "as for chat",
    "stream_options": "as for chat",
    "max_tokens": f"{DEFAULT_TOKENS} if absent or 0; -1: as many as fit the context",
    "temperature": "as for chat",
    "top_p": "as for chat",
    "top_k": "as for chat",
    "min_p": "as for chat",
    "seed": "as for chat",
    "stop": "as for chat",
    "presence_penalty": "as for chat",
    "frequency_penalty": "as for chat",
    "repetition_penalty": "as for chat",
    "repeat_penalty": "as for chat",
    "logit_bias": "as for chat",
    "n": f"1 to {MOST_CHOICES} texts for each prompt",
    "suffix": "what follows the text, which then fills the gap; for models whose vocabulary has tokens for that",
    "echo": "returns the prompt before the text",
    "logprobs": f"0 to {MOST_TOP_LOGPROBS}: for the new tokens, in the older format; not with `echo`",
    "service_tier": TIERS,
    "priority": "as for chat",
}

IGNORED: dict[str, str] = {"user": "raw completions belong to no session"}


def _not_one(value: Any) -> bool:
    return value not in (None, 1)


def _given(value: Any) -> bool:
    return value not in (None, "")


REFUSED: dict[str, Refusal] = {
    "best_of": Refusal(_not_one, "every text is returned; use `n`"),
    "session_id": Refusal(_given, "sessions are for /v1/chat/completions"),
    "tools": Refusal(_given, "tools are for /v1/chat/completions"),
    "response_format": Refusal(_given, "response formats are for /v1/chat/completions"),
    "grammar": Refusal(_given, "raw completions cannot be constrained"),
}
"""Fields that would change the answer and are not served."""
