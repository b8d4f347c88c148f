"""The tools of a chat, and the form that an answer is held to."""

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.ollama.wire import AskBody, OllamaFunction, OllamaTool
from tenuto.runtime.loop.requests import LeftOut, ResponseFormat, ToolSelection
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.schemas import expect_bounded, expect_valid
from tenuto.sessions.tool_limits import expect_within


def read_tools(tools: list[OllamaTool] | None) -> tuple[ToolSelection, list[LeftOut]]:
    """Which tools the model sees, and those of types that nobody here can run.

    A client that has none sends an empty list, and gets the server's default tools as one that sends no list.

    Raises:
        InvalidRequest: a tool is wrong.
    """
    client: dict[str, ToolSpec] = {}
    left_out: list[LeftOut] = []
    for index, tool in enumerate(tools or ()):
        path = f"tools[{index}]"
        if tool.type in (None, "function"):
            client[f"{path}.function"] = _function(tool.function, f"{path}.function")
        else:
            left_out.append(LeftOut(path, f"there are no tools of type {tool.type!r} here"))
    expect_within(client)
    for path, spec in client.items():
        expect_valid(spec.parameters, f"{path}.parameters")
    return ToolSelection(given=bool(tools), client=tuple(client.values())), left_out


def read_format(wire: AskBody) -> ResponseFormat | None:
    """The form of the answer; None where it is free.

    Raises:
        InvalidRequest: it is no schema.
    """
    match wire.format:
        case None:
            return None
        case "json":
            return ResponseFormat("json_object")
        case schema:
            expect_bounded(schema, "format")
            expect_valid(schema, "format")
            return ResponseFormat("json_schema", schema, strict=True)


def _function(function: OllamaFunction | None, path: str) -> ToolSpec:
    if function is None:
        raise InvalidRequest(f"{path}: field required", path)
    parameters = {"type": "object", **(function.parameters or {"properties": {}})}
    if parameters["type"] != "object":
        raise InvalidRequest(f"{path}.parameters.type: must be 'object'", f"{path}.parameters.type")
    return ToolSpec(function.name, function.description or "", parameters)
