"""Tools that the client runs, and the form of the answer, as OpenAI's requests share them."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.loop.requests import ResponseFormat, ToolSelection
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.schemas import expect_bounded, expect_valid
from tenuto.sessions.tool_limits import expect_within

FormatKind = Literal["text", "json_object", "json_schema"]


def function_spec(
    name: str, description: str | None, parameters: dict[str, Any] | None, path: str, *, strict: bool | None
) -> ToolSpec:
    """A function. Raises InvalidRequest where its parameters are no object."""
    parameters = parameters or {"type": "object", "properties": {}}
    if parameters.setdefault("type", "object") != "object":
        raise InvalidRequest(f"{path}.parameters.type: must be 'object'", f"{path}.parameters.type")
    return ToolSpec(name, description or "", parameters, strict)


def expect_fit(tools: Mapping[str, ToolSpec]) -> None:
    """Hold tools, by their places in the request, to their limits, and their schemas to what schemas are.

    Raises:
        InvalidRequest: two have one name, a schema is none or too large, or all together are.
    """
    expect_within(tools)
    for path, spec in tools.items():
        expect_valid(spec.parameters, f"{path}.parameters")


def check_choice(
    tools: ToolSelection,
    *,
    only: str = "tool_choice.function.name",
    allowed: str = "tool_choice.allowed_tools.tools[{index}].function.name",
) -> None:
    """What can be told without knowing the servers' tools; the loop checks the rest. `only` and `allowed`: where the
    names of the choice stand.

    Raises:
        InvalidRequest: the choice names what is not there.
    """
    if not tools.given or tools.servers:
        return
    names = [spec.name for spec in tools.client]
    if tools.choice is ToolChoice.REQUIRED and not names:
        raise InvalidRequest("tool_choice: a call is required and there are no tools", "tool_choice")
    if tools.only is not None:
        _check_known(tools.only, names, only)
    for index, name in enumerate(tools.allowed or ()):
        _check_known(name, names, allowed.format(index=index))


def response_format(
    kind: FormatKind, schema: dict[str, Any] | None, path: str, *, strict: bool | None
) -> ResponseFormat | None:
    """The form of the answer; None where it is free. `path` is where the schema stands.

    Raises:
        InvalidRequest: there is no schema, or it is none.
    """
    match kind:
        case "text":
            return None
        case "json_object":
            return ResponseFormat("json_object")
    if schema is None:
        raise InvalidRequest(f"{path}: field required", path)
    expect_bounded(schema, path)
    expect_valid(schema, path)
    return ResponseFormat("json_schema", schema, strict=strict is True)


def _check_known(name: str, names: Collection[str], param: str) -> None:
    if name not in names:
        raise InvalidRequest(f"{param}: there is no tool {name!r} in tools", param)
