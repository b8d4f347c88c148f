"""What llama-server's own completions requests look like on the wire, and what becomes of each field. No meaning.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
"""

from typing import Annotated, Any

from pydantic import Field

from tenuto.runtime.dialects.openai.completions.wire import MOST_COMPLETIONS
from tenuto.runtime.dialects.openai.sampling import MOST_BIASES, Limit, PlainSamplingFields
from tenuto.runtime.dialects.refusals import Refusal
from tenuto.runtime.http.body import Wire, at_most

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class PromptString(Wire):
    """A text as an object."""

    prompt_string: str


Mixed = Annotated[list[TokenId | str], Field(min_length=1)]
"""Token ids, and texts among them."""
Prompt = str | PromptString | Mixed


Pair = Annotated[list[TokenId | str | float | bool], Field(min_length=2, max_length=2)]
"""A token or a text, and its bias."""


class NativeCompletionBody(PlainSamplingFields):
    """A completions request as llama-server has it. None: not said."""

    prompt: str | PromptString | list[TokenId | str | PromptString | Mixed]
    n_predict: Limit | None = None
    return_tokens: bool | None = None
    logit_bias: Annotated[dict[str, float | bool] | list[Pair] | None, at_most(MOST_BIASES)] = None


SERVED: dict[str, str] = {
    "prompt": f"a string, token ids, both in one list, or an object with `prompt_string`; or up to {MOST_COMPLETIONS}",
    "n_predict": "-1, 0 or absent: as many tokens as fit the context",
    "return_tokens": "true: the answer has its tokens",
    "logit_bias": "pairs of a token, or a text, and its bias; or an object of them. false: never",
    **dict.fromkeys(PlainSamplingFields.model_fields, "as for chat"),
}

IGNORED: dict[str, str] = {
    "cache_prompt": "the runtime decides what is kept",
    "id_slot": "the runtime decides which slot",
    "n_keep": "a text that is too long is an error",
    "response_fields": "an answer has all its fields",
    "timings_per_token": "the figures come at the end",
    "return_progress": "the figures come at the end",
}


def _used(value: Any) -> bool:
    return value not in (None, "", 0, False)


REFUSED: dict[str, Refusal] = {
    "grammar": Refusal(_used, "raw completions cannot be constrained"),
    "json_schema": Refusal(lambda value: value is not None, "raw completions cannot be constrained"),
    "n_probs": Refusal(_used, "use `logprobs` in /v1/completions"),
    "ignore_eos": Refusal(_used, "a text ends where the model ends it"),
    "mirostat": Refusal(_used, "use `temperature`, `top_p` and `min_p`"),
}
"""Fields that would change the answer and are not served."""
