"""POST /infill, as llama-server has it: the text of a gap, from what stands before and after it and in other files."""

from typing import Annotated, Any

from pydantic import Field

from tenuto.json_bounds import MOST_PROMPT_VALUES
from tenuto.pipelines.infill import Gap, Snippet
from tenuto.runtime.dialects.openai.native_completions.request import NativeCompletionRequest, native_completion_of
from tenuto.runtime.dialects.openai.native_completions.wire import NativeCompletionBody
from tenuto.runtime.dialects.prompts import infill_tokens
from tenuto.runtime.http.body import Wire, parse_object, validate
from tenuto.runtime.loop.models import Models
from tenuto.sessions.principal import Principal

MOST_SNIPPETS = 1024


class SnippetBody(Wire):
    """A piece of another file."""

    text: str
    filename: str | None = None


class InfillBody(NativeCompletionBody):
    """A request to fill a gap. None: not said."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[SnippetBody], Field(max_length=MOST_SNIPPETS)] | None = None
    prompt: str = ""


SERVED: dict[str, str] = {
    "input_prefix": "what stands before the gap; of a long one the end counts",
    "input_suffix": "what stands after it; of a long one the beginning counts",
    "input_extra": f"up to {MOST_SNIPPETS} pieces of other files, with `text` and `filename`, as far as there is room",
    "prompt": "what the text of the gap begins with",
}
"""Beside those of /completion."""


def read_infill(body: bytes, models: Models, principal: Principal) -> NativeCompletionRequest:
    """Read the body of a principal's request.

    Raises:
        InvalidRequest: it cannot be understood, or the model cannot fill gaps; UnsupportedParameter for what is known
            and not served.
        NotFound: there is no such model.
    """
    value = parse_object(body, MOST_PROMPT_VALUES)
    wire = validate(InfillBody, {name: value[name] for name in InfillBody.model_fields if name in value})
    model = models.find(wire.model or None)
    snippets = [Snippet(one.text, one.filename or "tmp") for one in wire.input_extra or ()]
    gap = Gap(wire.input_prefix, wire.input_suffix, wire.prompt, snippets)
    most = wire.n_predict if wire.n_predict and wire.n_predict > 0 else None
    shared: dict[str, Any] = {name: given for name, given in value.items() if not name.startswith("input_")}
    prompt = list(infill_tokens(model, gap, most, "input_suffix"))
    return native_completion_of({**shared, "prompt": prompt}, models, principal)
