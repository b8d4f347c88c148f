"""A request for llama-server's completions to the raw completions that it asks for, which are read as OpenAI's are."""

from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.json_bounds import MOST_PROMPT_VALUES
from tenuto.pipelines.base import Codec
from tenuto.runtime.dialects.openai.completions.request import CompletionRequest, completion_of, expect_room
from tenuto.runtime.dialects.openai.completions.wire import CompletionBody
from tenuto.runtime.dialects.openai.native_completions.wire import (
    REFUSED,
    NativeCompletionBody,
    PromptString,
)
from tenuto.runtime.dialects.openai.sampling import PlainSamplingFields
from tenuto.runtime.dialects.prompts import prompt_tokens
from tenuto.runtime.dialects.refusals import refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.models import Models
from tenuto.sessions.principal import Principal

NEVER = -100.0
MOST_CHARACTERS = 256
"""Of the text of one bias."""


@dataclass(frozen=True, slots=True)
class NativeCompletionRequest:
    """A request, understood. `several`: the answer is a list."""

    completion: CompletionRequest
    several: bool
    returns_tokens: bool
    n_predict: int


def read_native_completion(body: bytes, models: Models, principal: Principal) -> NativeCompletionRequest:
    """Read the body of a principal's request.

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
        NotFound: there is no such model.
    """
    value = parse_object(body, MOST_PROMPT_VALUES)
    _refuse_media(value.get("prompt"))
    return native_completion_of(value, models, principal)


def native_completion_of(value: dict[str, Any], models: Models, principal: Principal) -> NativeCompletionRequest:
    """What a request's values mean. Raises what `read_native_completion` does."""
    refuse(value, REFUSED)
    wire = validate(NativeCompletionBody, value)
    shared = {name: value[name] for name in PlainSamplingFields.model_fields if name in value}
    model = models.find(wire.model or None)
    prompts, several = _prompts(wire.prompt)
    most = -1 if wire.n_predict in (None, 0) else wire.n_predict
    biases = {} if wire.logit_bias is None else {"logit_bias": _biases(wire.logit_bias, model.codec)}
    texts = [_text(prompt, model.codec, model.context) for prompt in prompts]
    whole = validate(CompletionBody, {**shared, **biases, "prompt": texts, "max_tokens": most})
    completion = completion_of(whole, models, principal)
    return NativeCompletionRequest(completion, several, wire.return_tokens is True, -1 if most is None else most)


def _refuse_media(prompt: Any) -> None:
    for one in prompt if isinstance(prompt, list) else [prompt]:
        if isinstance(one, dict) and one.get("multimodal_data") is not None:
            raise UnsupportedParameter("prompt.multimodal_data: raw completions read text alone", "prompt")


def _prompts(prompt: Any) -> tuple[list[Any], bool]:
    """The texts, and whether a list of them was asked for: one with ids in it is a single text."""
    if not isinstance(prompt, list):
        return [prompt], False
    if not prompt:
        raise InvalidRequest("prompt: there is no text", "prompt")
    if any(isinstance(one, int) for one in prompt):
        if any(isinstance(one, (PromptString, list)) for one in prompt):
            raise InvalidRequest("prompt: among token ids only texts may stand", "prompt")
        return [prompt], False
    return list(prompt), True


def _text(prompt: Any, codec: Codec, context: int) -> str | list[int]:
    """A text as it is, or as ids, where there are some."""
    if isinstance(prompt, PromptString):
        return prompt.prompt_string
    if isinstance(prompt, str):
        return prompt
    expect_room(codec, [part for part in prompt if isinstance(part, str)], context)
    ids: list[int] = []
    for part in prompt:
        if isinstance(part, str):
            ids += codec.tokenize(part) if ids else prompt_tokens(codec, part)
        else:
            ids.append(part)
    return ids


def _biases(given: dict[str, Any] | list[list[Any]], codec: Codec) -> dict[str, float]:
    """Biases by token: a text's is that of each of its tokens. False is never."""
    found: dict[str, float] = {}
    for named, bias in given.items() if isinstance(given, dict) else given:
        if isinstance(named, (bool, float)) or isinstance(bias, str) or bias is True:
            raise InvalidRequest("logit_bias: each is a token or a text, with a number or false", "logit_bias")
        for token in _tokens(named, codec):
            found[token] = NEVER if bias is False else float(bias)
    return found


def _tokens(named: int | str, codec: Codec) -> list[str]:
    """The tokens of a bias; a text of digits is a token, as it is where objects have names."""
    if isinstance(named, int) or named.isdecimal():
        return [str(named)]
    if len(named) > MOST_CHARACTERS:
        raise InvalidRequest(f"logit_bias: a text has at most {MOST_CHARACTERS} characters", "logit_bias")
    return [str(token) for token in codec.tokenize(named)]
