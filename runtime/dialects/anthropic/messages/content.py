"""The messages of a request as items: roles, and the blocks of their contents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import to_json

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.dialects.anthropic.messages.wire import BlockSource, InputBlock, InputMessage
from tenuto.runtime.loop.prefill import Prefill, split
from tenuto.runtime.schema.base64 import expect_base64
from tenuto.runtime.schema.mcp_parts import divided
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

_LONGEST_URL = 8192

_VOLATILE = "x-anthropic-billing-header:"
"""Begins a line that Claude Code puts before its instructions, another one in each conversation."""


@dataclass(slots=True)
class Conversation:
    """The items of a request, what they carry besides text, and what of it was left out."""

    items: list[Item] = field(default_factory=list)
    carried: list[tuple[str, str]] = field(default_factory=list)
    """The kind of each part that is no text, and its place."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What was left out, and its place."""
    prefill: Prefill | None = None
    """The beginning of the answer."""


def read_conversation(system: Sequence[InputBlock] | None, messages: Sequence[InputMessage]) -> Conversation:
    """The instructions and the messages.

    Raises:
        InvalidRequest: a message or a block of it cannot be understood; UnsupportedParameter for what is not served.
    """
    reader = _Reader()
    if text := _instructions(system or ()):
        reader.found.items.append(SystemItem(text))
    for index, message in enumerate(messages):
        reader.read(message, f"messages[{index}]")
    found = reader.found
    if messages[-1].role == "assistant":
        before, found.prefill = split(found.items)
        if found.prefill is None:
            place = f"messages[{len(messages) - 1}].role"
            raise InvalidRequest(f"{place}: the last message must be the user's, or a text to begin the answer", place)
        found.items = [*before]
    return found


def _instructions(blocks: Sequence[InputBlock]) -> str:
    """Blocks are paragraphs. What differs by conversation would keep conversations from sharing a cache."""
    text = "\n".join(_text_of(block, f"system[{index}]") for index, block in enumerate(blocks))
    if text.startswith(_VOLATILE):
        _, _, text = text.partition("\n")
    return text


class _Reader:
    """Reads messages one by one."""

    def __init__(self) -> None:
        self.found = Conversation()
        self._called: dict[str, str] = {}

    def read(self, message: InputMessage, path: str) -> None:
        blocks = [(block, f"{path}.content[{index}]") for index, block in enumerate(message.content)]
        match message.role:
            case "system":
                self.found.items.append(SystemItem("\n".join(_text_of(block, place) for block, place in blocks)))
            case "user":
                self._user(blocks)
            case "assistant":
                self._assistant(blocks)

    def _user(self, blocks: Sequence[tuple[InputBlock, str]]) -> None:
        """Results come first: they answer the assistant's message."""
        rest: list[tuple[InputBlock, str]] = []
        for block, place in blocks:
            if block.type == "tool_result":
                self.found.items.append(self._result(block, place))
            else:
                rest.append((block, place))
        if rest or not blocks:
            for one in divided(rest):
                self.found.items.append(one if isinstance(one, UserItem) else UserItem(*self._read(one)))

    def _result(self, block: InputBlock, path: str) -> ToolResultItem:
        if not block.tool_use_id:
            raise InvalidRequest(f"{path}.tool_use_id: a result names the call it answers", f"{path}.tool_use_id")
        parts = [(part, f"{path}.content[{index}]") for index, part in enumerate(block.content or ())]
        text, attachments = self._read(parts)
        # Where the call is not in this body, the session knows its name.
        name = self._called.get(block.tool_use_id, "")
        is_error = block.is_error is True
        return ToolResultItem(block.tool_use_id, name, text, is_error=is_error, attachments=attachments)

    def _read(self, blocks: Sequence[tuple[InputBlock, str]]) -> tuple[str, tuple[Attachment, ...]]:
        """What a user or a tool says, and what goes with it."""
        texts: list[str] = []
        attachments: list[Attachment] = []
        for block, place in blocks:
            match block.type:
                case "image":
                    attachments.append(_image(_source_of(block, place), f"{place}.source"))
                    self.found.carried.append(("image", place))
                case "document":
                    self._document(block, place, texts, attachments)
                case "search_result":
                    texts.append(_search_result(block, place))
                case "tool_reference" | "container_upload" | "browser_state":
                    self.found.left_out.append((block.type, place))
                case _:
                    texts.append(_text_of(block, place))
        return "\n".join(texts), tuple(attachments)

    def _document(self, block: InputBlock, path: str, texts: list[str], attachments: list[Attachment]) -> None:
        source = _source_of(block, path)
        texts += [text for text in (block.title, block.context) if text]
        match source.type:
            case "text":
                texts.append(_data_of(source, f"{path}.source"))
            case "content":
                inner = [(part, f"{path}.source.content[{i}]") for i, part in enumerate(source.content or ())]
                text, more = self._read(inner)
                texts.append(text)
                attachments += more
            case _:
                attachments.append(_attachment("file", source, "application/pdf", f"{path}.source"))
                self.found.carried.append(("file", path))

    def _assistant(self, blocks: Sequence[tuple[InputBlock, str]]) -> None:
        """Its blocks are pieces of one turn, and so are two messages of it in a row."""
        turn = _Turn()
        for block, place in blocks:
            if turn.results and block.type != "mcp_tool_result":
                self._keep(turn)
                turn = _Turn()
            match block.type:
                case "thinking":
                    turn.thought.append(block.thinking or "")
                case "tool_use":
                    turn.calls.append(_call(block, place))
                case "mcp_tool_use":
                    turn.made.append(_made(block, place))
                case "mcp_tool_result":
                    turn.results.append(self._answered(block, place))
                case "text":
                    turn.said.append(block.text or "")
                case "compaction":  # what another server has made of the messages before it
                    turn.said += [part.text or "" for part in block.content or ()]
                case "image" | "document" | "tool_result" | "search_result" | "mcp_resource" | "mcp_prompt":
                    raise InvalidRequest(f"{place}.type: only a user's message carries {block.type!r}", f"{place}.type")
                case "redacted_thinking":
                    pass  # nobody here can read it
                case _:
                    # What tools of another server have done, and what they have answered.
                    self.found.left_out.append((block.type, place))
        self._keep(turn)

    def _answered(self, block: InputBlock, path: str) -> ToolResultItem:
        """The result of a call that the server made."""
        if not block.tool_use_id:
            raise InvalidRequest(f"{path}.tool_use_id: a result names the call it answers", f"{path}.tool_use_id")
        text = "\n".join(_text_of(part, f"{path}.content[{at}]") for at, part in enumerate(block.content or ()))
        return ToolResultItem(block.tool_use_id, "", text, is_error=block.is_error is True, server=True)

    def _keep(self, turn: "_Turn") -> None:
        """What was said up to the results of server tools, or to the end. A server call without one was never made."""
        results = {result.call_id: result for result in turn.results}
        made = [call for call in turn.made if call.id in results]
        calls = (*made, *turn.calls)
        self._called.update((call.id, call.name) for call in turn.calls)
        item = AssistantItem("".join(turn.said), "".join(turn.thought), calls)
        items = self.found.items
        if items and isinstance(last := items[-1], AssistantItem):
            text, reasoning = last.text + item.text, last.reasoning + item.reasoning
            items[-1] = replace(last, text=text, reasoning=reasoning, calls=last.calls + item.calls)
        else:
            items.append(item)
        items += [replace(results[call.id], name=call.name) for call in made]


@dataclass(slots=True)
class _Turn:
    """What an assistant's message says up to the results of server tools that it has called: its own calls, those of
    the client's tools, and those that were `made`."""

    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    made: list[ToolCall] = field(default_factory=list)
    results: list[ToolResultItem] = field(default_factory=list)


def _made(block: InputBlock, path: str) -> ToolCall:
    """A call that the server made, by the name that the model has for its tool."""
    if not block.server_name:
        raise InvalidRequest(f"{path}.server_name: field required", f"{path}.server_name")
    call = _call(block, path)
    return replace(call, name=called_name(block.server_name, call.name), server=True)


def _text_of(block: InputBlock, path: str) -> str:
    if block.type != "text":
        raise InvalidRequest(f"{path}.type: a block of type {block.type!r} cannot stand here", f"{path}.type")
    if block.text is None:
        raise InvalidRequest(f"{path}.text: field required", f"{path}.text")
    return block.text


def _call(block: InputBlock, path: str) -> ToolCall:
    given: Mapping[str, Any] = {"id": block.id, "name": block.name}
    for name, value in given.items():
        if not value:
            raise InvalidRequest(f"{path}.{name}: field required", f"{path}.{name}")
    return ToolCall(block.id or "", block.name or "", to_json({} if block.input is None else block.input).decode())


def _search_result(block: InputBlock, path: str) -> str:
    origin = block.source.data if block.source else None
    texts = [_text_of(part, f"{path}.content[{index}]") for index, part in enumerate(block.content or ())]
    return "\n".join([*(text for text in (block.title, origin) if text), *texts])


def _source_of(block: InputBlock, path: str) -> BlockSource:
    if block.source is None:
        raise InvalidRequest(f"{path}.source: field required", f"{path}.source")
    return block.source


def _image(source: BlockSource, path: str) -> Attachment:
    attachment = _attachment("image", source, "image/*", path)
    if not attachment.mime_type.startswith("image/"):
        raise InvalidRequest(f"{path}.media_type: {attachment.mime_type} is not an image type", f"{path}.media_type")
    return attachment


def _attachment(kind: Any, source: BlockSource, unknown: str, path: str) -> Attachment:
    match source.type:
        case "base64":
            data = _data_of(source, path)
            expect_base64(data, f"{path}.data")
            return Attachment(kind, (source.media_type or unknown).lower(), data=data)
        case "url":
            url = source.url or ""
            if not url.startswith(("https://", "http://")) or len(url) > _LONGEST_URL:
                raise InvalidRequest(f"{path}.url: must be an http(s) address", f"{path}.url")
            return Attachment(kind, unknown, uri=url)
        case "file":
            raise UnsupportedParameter(
                f"{path}.file_id: files are not kept here; send what it holds, with type base64", f"{path}.file_id"
            )
        case other:
            raise InvalidRequest(f"{path}.type: there are no sources of type {other!r}", f"{path}.type")


def _data_of(source: BlockSource, path: str) -> str:
    if source.data is None:
        raise InvalidRequest(f"{path}.data: field required", f"{path}.data")
    return source.data
