"""The input of a request for a response as items: what stands between two of the user's is one turn of the model's."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.dialects.openai import attachments
from tenuto.runtime.dialects.openai.responses.callables import model_name, wrapped
from tenuto.runtime.dialects.openai.responses.summaries import HEADING, unpacked
from tenuto.runtime.dialects.openai.responses.wire import ELSEWHERE, InputItem, Part, Tool
from tenuto.runtime.loop.requests import LeftOut
from tenuto.runtime.schema.mcp_parts import TYPES, divided
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from tenuto.tools.names import called_name

_TEXTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text")


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's answer to an approval request, which is what the input ends with."""

    request_id: str
    approve: bool
    reason: str | None


@dataclass(slots=True)
class Input:
    """What the input says. `tools` are those that it brings with their places, `listed` the labels of the servers whose
    tools it lists."""

    items: list[Item] = field(default_factory=list)
    tools: list[tuple[str, Tool]] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    approval: Approval | None = None
    left_out: list[LeftOut] = field(default_factory=list)


def read_input(wire: Sequence[InputItem], path: str = "input") -> Input:
    """Read an input.

    Raises:
        InvalidRequest: an item cannot be understood; UnsupportedParameter for what is not served.
    """
    reader = _Reader(Input())
    for index, item in enumerate(wire):
        reader.take(item, f"{path}[{index}]")
    reader.close_turn()
    return reader.found


@dataclass(slots=True)
class _Reader:
    """Gathers what the model said since the last item of anybody else's into one item, as a round is kept."""

    found: Input
    _called: dict[str, str] = field(default_factory=dict)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)

    def take(self, item: InputItem, path: str) -> None:
        kind = item.type or ("message" if item.role else "item_reference")
        self.found.approval = None
        match kind:
            case "message":
                self._message(item, path)
            case "reasoning":
                self._reasoning += [part.text or "" for part in item.content or ()]
            case "function_call":
                self._call(item, item.arguments or "", path)
            case "custom_tool_call":
                self._call(item, wrapped(item.input or ""), path)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, path)
            case _:
                self._take_other(kind, item, path)

    def _take_other(self, kind: str, item: InputItem, path: str) -> None:
        """What no model says: what servers have done, and what is no part of a conversation here."""
        match kind:
            case "mcp_call":
                self._server_call(item, path)
            case "mcp_list_tools":
                self.found.listed.add(item.server_label or "")
            case "mcp_approval_request":
                pass  # the run that asked knows
            case "mcp_approval_response":
                self.found.approval = _approval(item, path)
            case "compaction" if (summary := unpacked(item.encrypted_content)) is not None:
                self._text.append(HEADING + summary)
            case "additional_tools":
                self.found.tools += [(f"{path}.tools[{at}]", tool) for at, tool in enumerate(item.tools or ())]
            case "item_reference":
                raise UnsupportedParameter(f"{path}: items are not kept by their ids here; send the item itself", path)
            case _ if kind in ELSEWHERE:
                self.found.left_out.append(LeftOut(path, f"no model here reads items of type {kind!r}"))
            case _:
                raise InvalidRequest(f"{path}.type: there are no items of type {kind!r}", f"{path}.type")

    def close_turn(self) -> None:
        """Somebody else has the word."""
        if self._text or self._reasoning or self._calls:
            self.found.items.append(self._turn(tuple(self._calls)))

    def _turn(self, calls: tuple[ToolCall, ...]) -> AssistantItem:
        item = AssistantItem("".join(self._text), "".join(self._reasoning), calls)
        self._text, self._reasoning, self._calls = [], [], []
        return item

    def _message(self, item: InputItem, path: str) -> None:
        parts = item.content or ()
        match item.role:
            case "assistant":
                self._text += [_text_of(part, f"{path}.content[{at}]") for at, part in enumerate(parts)]
                return
            case None:
                raise InvalidRequest(f"{path}.role: field required", f"{path}.role")
        self.close_turn()
        placed = _placed(parts, f"{path}.content")
        if item.role != "user":
            self.found.items.append(SystemItem(self._content(placed, item.role or "")[0]))
            return
        for one in divided(placed):
            self.found.items.append(one if isinstance(one, UserItem) else UserItem(*self._content(one, "user")))

    def _call(self, item: InputItem, arguments: str, path: str) -> None:
        if item.name is None or item.call_id is None:
            missing = f"{path}.call_id" if item.name else f"{path}.name"
            raise InvalidRequest(f"{missing}: field required", missing)
        call = ToolCall(item.call_id, model_name(item.name, item.namespace), arguments)
        self._calls.append(call)
        self._called[call.id] = call.name

    def _result(self, item: InputItem, path: str) -> None:
        if item.call_id is None:
            raise InvalidRequest(f"{path}.call_id: an output names the call that it answers", f"{path}.call_id")
        self.close_turn()
        text, carried = self._content(_placed(item.output or (), f"{path}.output"), "tool")
        # Where the call is not in this input, the session knows its name.
        name = self._called.get(item.call_id, "")
        self.found.items.append(ToolResultItem(item.call_id, name, text, attachments=carried))

    def _server_call(self, item: InputItem, path: str) -> None:
        """A call that the server made, with its result: a round of its own, before the client's calls of its round."""
        if item.name is None or item.server_label is None:
            missing = f"{path}.server_label" if item.name else f"{path}.name"
            raise InvalidRequest(f"{missing}: field required", missing)
        output = "\n".join(part.text or "" for part in item.output or ())
        if item.output is None and item.error is None:
            return  # it was never made
        call = ToolCall(item.id or path, called_name(item.server_label, item.name), item.arguments or "", server=True)
        clients = self._calls
        text = output if item.error is None else _error_text(item.error)
        result = ToolResultItem(call.id, call.name, text, is_error=item.error is not None, server=True)
        self.found.items += [self._turn((call,)), result]
        self._calls = clients

    def _content(self, parts: Sequence[tuple[Part, str]], role: str) -> tuple[str, tuple[Attachment, ...]]:
        """Parts are paragraphs: the texts are joined by a line break."""
        texts: list[str] = []
        carried: list[Attachment] = []
        for part, place in parts:
            attachment = _attachment(part, place)
            if attachment is None:
                texts.append(_text_of(part, place))
            elif role in ("user", "tool"):
                carried.append(attachment)
            else:
                raise InvalidRequest(f"{place}.type: no {role} message carries {part.type!r}", f"{place}.type")
        return "\n".join(texts), tuple(carried)


def _placed(parts: Sequence[Part], path: str) -> list[tuple[Part, str]]:
    return [(part, f"{path}[{index}]") for index, part in enumerate(parts)]


def _approval(item: InputItem, path: str) -> Approval:
    if item.approval_request_id is None or item.approve is None:
        missing = f"{path}.{'approve' if item.approval_request_id else 'approval_request_id'}"
        raise InvalidRequest(f"{missing}: field required", missing)
    return Approval(item.approval_request_id, item.approve, item.reason)


def _error_text(error: Any) -> str:
    """What an MCP call's error says: older clients send a text."""
    if isinstance(error, dict):
        content = error.get("message", error.get("content"))
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            return "\n".join(text for text in texts if isinstance(text, str))
        error = content
    return error if isinstance(error, str) else json.dumps(error)


def _text_of(part: Part, path: str) -> str:
    if part.type == "refusal":
        field, text = "refusal", part.refusal
    elif part.type in _TEXTS:
        field, text = "text", part.text
    elif part.type in ("input_image", "image_url", "input_audio", "input_file", *TYPES):
        raise InvalidRequest(f"{path}.type: no {part.type!r} can stand here", f"{path}.type")
    else:
        raise InvalidRequest(f"{path}.type: there are no parts of type {part.type!r}", f"{path}.type")
    if text is None:
        raise InvalidRequest(f"{path}.{field}: field required", f"{path}.{field}")
    return text


def _attachment(part: Part, path: str) -> Attachment | None:
    """What a part carries; None where it is text, or unknown."""
    match part.type:
        case "input_image" | "image_url" if part.image_url is not None:
            return attachments.image(part.image_url, f"{path}.image_url")
        case "input_image" | "image_url" if part.file_id is None:
            raise InvalidRequest(f"{path}.image_url: field required", f"{path}.image_url")
        case "input_audio":
            if part.input_audio is None:
                raise InvalidRequest(f"{path}.input_audio: field required", f"{path}.input_audio")
            return attachments.audio(part.input_audio.data, part.input_audio.format, f"{path}.input_audio.data")
        case "input_file" if part.file_data is not None:
            return attachments.file(part.file_data, f"{path}.file_data")
        case "input_file" if part.file_url is not None:
            return attachments.file_at(part.file_url, f"{path}.file_url")
        case "input_image" | "image_url" | "input_file":
            attachments.refuse_file_id(f"{path}.file_id")
    return None
