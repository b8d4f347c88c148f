"""The variables of a model's chat template: what a request's words about reasoning mean to it, and the codec with them.

Templates name their switches as they like; those that many share are set from the request, and others by their names.
"""

from collections.abc import Iterator
from typing import Any

import anyio.to_thread

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import Codec, CodecInfo
from tenuto.pipelines.template_variables import TemplateVariables
from tenuto.runtime.loop.requests import LeftOut, Reasoning, Turn

_SWITCHES = ("enable_thinking", "thinking")
_EFFORTS = ("reasoning_effort", "thinking_effort")
_BUDGET = "thinking_budget"
_NONE = "none"
_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}
"""For templates that do not name the first ones."""


def variables_of(turn: Turn, info: CodecInfo) -> TemplateVariables:
    """What the template of a model is rendered with for a turn. What the request names itself counts more.

    Raises:
        InvalidRequest: with what the request says besides, it is too much.
    """
    values = dict(_meant(turn.reasoning, info)) | turn.variables.only(info.variables).values
    try:
        return TemplateVariables.of(values)
    except ValueError as error:
        raise InvalidRequest(f"chat_template_kwargs: {error}", "chat_template_kwargs") from None


def left_out(turn: Turn, info: CodecInfo) -> Iterator[LeftOut]:
    """What to tell of settings that this model does not have."""
    unread = sorted(turn.variables.values.keys() - info.variables)
    if unread:
        yield LeftOut("chat_template_kwargs", f"the model's chat template does not look at {', '.join(unread)}")
    asked = turn.reasoning
    switches = info.variables.intersection(_SWITCHES)
    if _is_on(asked) is False and info.reasons and not switches and not turn.variables:
        yield LeftOut("reasoning", "the model's chat template has no switch for it")
    if asked.budget is not None and not info.reasons:
        yield LeftOut("thinking_budget", "the model does not mark its reasoning")


async def with_variables(codec: Codec, variables: TemplateVariables) -> Codec:
    """The codec whose template has these variables, made in a worker thread where it is not at hand."""
    if codec.has_at_hand(variables):
        return codec.with_variables(variables)
    return await anyio.to_thread.run_sync(codec.with_variables, variables)


def _is_on(asked: Reasoning) -> bool | None:
    """Who asks for an effort asks for reasoning."""
    if asked.is_on is not None or asked.effort is None:
        return asked.is_on
    return asked.effort != _NONE


def _meant(asked: Reasoning, info: CodecInfo) -> Iterator[tuple[str, Any]]:
    is_on = _is_on(asked)
    if is_on is not None:
        yield from ((name, is_on) for name in _SWITCHES if name in info.variables)
    if asked.effort is not None and (is_on or _names(info, asked.effort)):
        effort = asked.effort if _names(info, asked.effort) else _NEAREST.get(asked.effort, asked.effort)
        yield from ((name, effort) for name in _EFFORTS if name in info.variables)
    if asked.budget is not None and _BUDGET in info.variables:
        yield _BUDGET, asked.budget


def _names(info: CodecInfo, word: str) -> bool:
    return f"'{word}'" in info.template or f'"{word}"' in info.template
