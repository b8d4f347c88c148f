"""A server's tool and its result in our words. What is no text is named in it and kept beside it; sizes are bounded."""

import json
from collections.abc import Sequence
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types import Tool as McpTool

from tenuto.sessions.items import Attachment, ToolSpec
from tenuto.tools.spec import Annotations, Tool, ToolResult

MAX_TEXT_CHARACTERS = 2**20
_UNKNOWN_TYPE = "application/octet-stream"

MAX_ATTACHMENT_CHARACTERS = 8 * 2**20
"""Of all base64 texts of one result together; what is over it is named in the text alone."""


def to_tool(tool: McpTool) -> Tool:
    """A listed tool. Hints that are absent have the meaning that MCP gives to their absence."""
    hints = tool.annotations
    annotations = Annotations()
    if hints is not None:
        annotations = Annotations(
            title=hints.title,
            read_only=bool(hints.read_only_hint),
            idempotent=bool(hints.idempotent_hint),
            destructive=hints.destructive_hint is not False,
            open_world=hints.open_world_hint is not False,
        )
    spec = ToolSpec(tool.name, tool.description or tool.title or "", tool.input_schema)
    icons = tuple(icon.model_dump(mode="json", by_alias=True, exclude_none=True) for icon in tool.icons or ())
    return Tool(spec, annotations, tool.output_schema, tool.title, icons, tool.meta)


def to_result(result: CallToolResult, limit: int = MAX_TEXT_CHARACTERS) -> ToolResult:
    """A call's result. `limit` bounds the text, and the structured content by its JSON text."""
    text = "\n".join(content_text(block) for block in result.content)
    structured = result.structured_content
    if structured is not None:
        as_json = json.dumps(structured, ensure_ascii=False)
        text = text or as_json
        structured = structured if len(as_json) <= limit else None
    if result.is_error:
        text = _error_text(text)
    return ToolResult(
        shortened(text, limit),
        bool(result.is_error),
        structured,
        _attachments(result.content),
        whole=result,
    )


def shortened(text: str, limit: int) -> str:
    """The text, or its head and tail with the number of characters between them that are left out."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]}\n[{len(text) - head - tail} characters omitted]\n{text[len(text) - tail :]}"


def _error_text(text: str) -> str:
    """Make sure that the model sees a failure: it reads the text alone."""
    if text.lstrip().lower().startswith(("error", '{"error"')):
        return text
    return f"Error: {text or 'the tool failed and said nothing'}"


def _attachments(content: Sequence[ContentBlock]) -> tuple[Attachment, ...]:
    """What is no text, in its order, as far as there is room."""
    kept: list[Attachment] = []
    room = MAX_ATTACHMENT_CHARACTERS
    for block in content:
        attachment = _attachment(block)
        size = 0 if attachment is None else len(attachment.data or "") + len(attachment.uri or "")
        if attachment is not None and size <= room:
            kept.append(attachment)
            room -= size
    return tuple(kept)


def _attachment(block: ContentBlock) -> Attachment | None:
    match block:
        case ImageContent():
            return Attachment("image", block.mime_type, data=block.data)
        case AudioContent():
            return Attachment("audio", block.mime_type, data=block.data)
        case ResourceLink():
            return Attachment("file", block.mime_type or _UNKNOWN_TYPE, uri=block.uri)
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return Attachment("file", resource.mime_type or _UNKNOWN_TYPE, data=resource.blob, uri=resource.uri)
    return None


def content_text(block: ContentBlock) -> str:
    """A block as a model reads it."""
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image: {block.mime_type}, {decoded_bytes(block.data)} bytes]"
        case AudioContent():
            return f"[audio: {block.mime_type}, {decoded_bytes(block.data)} bytes]"
        case ResourceLink():
            size = "" if block.size is None else f", {block.size} bytes"
            return f"[resource: {block.uri}, {block.mime_type or 'type unknown'}{size}]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            # Servers answer "read this file" so: without the text the model would have nothing.
            return f"[resource: {resource.uri}]\n{resource.text}"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            size = f"{decoded_bytes(resource.blob)} bytes"
            return f"[resource: {resource.uri}, {resource.mime_type or 'type unknown'}, {size}]"
    return _unknown(block)


def _unknown(block: Any) -> str:
    return f"[content of the kind {type(block).__name__}]"


def decoded_bytes(base64_text: str) -> int:
    """How many bytes a text in base64 stands for."""
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")
