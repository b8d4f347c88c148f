"""Messages as Ollama's clients send them, as items."""

from base64 import b64decode
from collections.abc import Sequence

from pydantic_core import to_json

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.ollama.wire import OllamaCall, OllamaMessage
from tenuto.runtime.schema.base64 import expect_base64
from tenuto.runtime.schema.mcp_parts import named_items
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)

_KINDS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))
"""How the files of images begin."""


def read_messages(messages: Sequence[OllamaMessage]) -> list[Item]:
    """Messages to items: one each, after what it names of MCP servers. Calls and results have ids only where their
    client sends them.

    Raises:
        InvalidRequest: a message cannot be understood.
    """
    items: list[Item] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.attach and message.role != "user":
            raise InvalidRequest(f"{path}.attach: only messages of users carry resources and prompts", f"{path}.attach")
        items += [*named_items(message.attach, f"{path}.attach"), _item(message, path)]
    return items


def read_images(images: Sequence[str] | None, path: str) -> tuple[Attachment, ...]:
    """Images in base64. Raises InvalidRequest."""
    return tuple(_image(data, f"{path}[{index}]") for index, data in enumerate(images or ()))


def _item(message: OllamaMessage, path: str) -> Item:
    text = message.content or ""
    images = read_images(message.images, f"{path}.images")
    if images and message.role not in ("user", "tool"):
        raise InvalidRequest(f"{path}.images: only messages of users and tools carry images", f"{path}.images")
    match message.role:
        case "system" | "developer":
            return SystemItem(text)
        case "user":
            return UserItem(text, images)
        case "assistant":
            return AssistantItem(text, message.thinking or "", tuple(map(_call, message.tool_calls or ())))
        case "tool":
            return ToolResultItem(message.tool_call_id or "", message.tool_name or "", text, attachments=images)


def _call(call: OllamaCall) -> ToolCall:
    return ToolCall(call.id or "", call.function.name, to_json(call.function.arguments or {}).decode())


def _image(data: str, path: str) -> Attachment:
    expect_base64(data, path)
    return Attachment("image", f"image/{_kind(data)}", data=data)


def _kind(data: str) -> str:
    """What the image is by its first bytes, as clients send no type."""
    head = b64decode(data[:16])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _KINDS if head.startswith(start)), "*")
