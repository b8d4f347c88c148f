"""The messages of a chat completions request as items: roles, and the parts of their contents."""

from collections.abc import Mapping, Sequence

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.dialects.openai import attachments as attached
from tenuto.runtime.dialects.openai.chat.wire import Message, Part
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


def read_messages(messages: Sequence[Message]) -> list[Item]:
    """Messages to items: one each, and more where a user's names what an MCP server has.

    Raises:
        InvalidRequest: a message or a part of it cannot be understood; UnsupportedParameter for what is not served.
    """
    called: dict[str, str] = {}
    items: list[Item] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.role == "user":
            _check_fields(message, path)
            items += _said(message.content, f"{path}.content")
            continue
        item = _item(message, called, path)
        if isinstance(item, AssistantItem):
            called.update((call.id, call.name) for call in item.calls)
        items.append(item)
    return items


def _item(message: Message, called: Mapping[str, str], path: str) -> Item:
    _check_fields(message, path)
    content = f"{path}.content"
    match message.role:
        case "system" | "developer":
            return SystemItem(_text(message.content, content))
        case "assistant":
            return _assistant(message, _text(message.content, content))
        case _:
            if not message.tool_call_id:
                raise InvalidRequest(
                    f"{path}.tool_call_id: a tool message names the call it answers", f"{path}.tool_call_id"
                )
            # Where the call is not in this body, the session knows its name.
            name = called.get(message.tool_call_id) or message.name or ""
            text, attachments = _content(_placed(message.content, content))
            return ToolResultItem(message.tool_call_id, name, text, attachments=attachments)


def _check_fields(message: Message, path: str) -> None:
    for name in ("function_call", "audio"):
        if getattr(message, name) is not None:
            raise UnsupportedParameter(f"{path}.{name} is not served", f"{path}.{name}")


def _said(parts: Sequence[Part], path: str) -> list[Item]:
    """What a user says."""
    each = divided(_placed(parts, path))
    return [one if isinstance(one, UserItem) else UserItem(*_content(one)) for one in each]


def _placed(parts: Sequence[Part], path: str) -> list[tuple[Part, str]]:
    return [(part, f"{path}[{index}]") for index, part in enumerate(parts)]


def _content(parts: Sequence[tuple[Part, str]]) -> tuple[str, tuple[Attachment, ...]]:
    """The text, and what comes with it."""
    texts: list[str] = []
    attachments: list[Attachment] = []
    for part, place in parts:
        attachment = _attachment(part, place)
        if attachment is None:
            texts.append(_text_of(part, place))
        else:
            attachments.append(attachment)
    return "\n".join(texts), tuple(attachments)


def _assistant(message: Message, text: str) -> AssistantItem:
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    return AssistantItem(text or message.refusal or "", message.reasoning_content or message.reasoning or "", calls)


def _text(parts: Sequence[Part], path: str) -> str:
    """Parts are paragraphs: they are joined by a line break."""
    return "\n".join(_text_of(part, f"{path}[{index}]") for index, part in enumerate(parts))


def _text_of(part: Part, path: str) -> str:
    match part.type:
        case "text" if part.text is not None:
            return part.text
        case "refusal" if part.refusal is not None:
            return part.refusal
        case "text" | "refusal":
            raise InvalidRequest(f"{path}.{part.type}: field required", f"{path}.{part.type}")
        case "image_url" | "input_image" | "input_audio" | "file":
            raise InvalidRequest(f"{path}.type: only messages of users and tools carry {part.type!r}", f"{path}.type")
        case kind if kind in TYPES:
            raise InvalidRequest(f"{path}.type: only messages of users carry {kind!r}", f"{path}.type")
        case other:
            raise InvalidRequest(f"{path}.type: there are no parts of type {other!r}", f"{path}.type")


def _attachment(part: Part, path: str) -> Attachment | None:
    """What a part carries; None where it is text, or unknown."""
    match part.type:
        case "image_url" | "input_image":
            if part.image_url is None:
                raise InvalidRequest(f"{path}.image_url: field required", f"{path}.image_url")
            return attached.image(part.image_url.url, f"{path}.image_url.url")
        case "input_audio":
            if part.input_audio is None:
                raise InvalidRequest(f"{path}.input_audio: field required", f"{path}.input_audio")
            return attached.audio(part.input_audio.data, part.input_audio.format, f"{path}.input_audio.data")
        case "file":
            return _file(part, f"{path}.file")
        case _:
            return None


def _file(part: Part, path: str) -> Attachment:
    if part.file is None:
        raise InvalidRequest(f"{path}: field required", path)
    if part.file.file_id is not None:
        attached.refuse_file_id(f"{path}.file_id")
    if part.file.file_data is None:
        raise InvalidRequest(f"{path}.file_data: field required", f"{path}.file_data")
    return attached.file(part.file.file_data, f"{path}.file_data")
