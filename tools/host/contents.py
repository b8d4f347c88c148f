"""What resources and messages of prompts hold, in our words: text, images, and a note for whatever else there is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mcp_types import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

from tenuto.sessions.items import Attachment
from tenuto.tools.host.results import content_text, decoded_bytes


@dataclass(frozen=True, slots=True)
class Content:
    """Text and images, and what there is besides: `[application/pdf, 1200 bytes]`."""

    texts: tuple[str, ...] = ()
    images: tuple[Attachment, ...] = ()
    unread: tuple[str, ...] = ()
    mime_type: str | None = field(default=None)
    """Of the first."""

    @property
    def characters(self) -> int:
        """Of its text."""
        return sum(map(len, self.texts))

    @property
    def image_characters(self) -> int:
        """Of its images, in base64."""
        return sum(len(image.data or "") for image in self.images)


def of_resource(found: ReadResourceResult) -> Content:
    """What has been read of a resource, all its contents together."""
    texts: list[str] = []
    images: list[Attachment] = []
    unread: list[str] = []
    for each in found.contents:
        match each:
            case TextResourceContents():
                texts.append(each.text)
            case BlobResourceContents() if (each.mime_type or "").startswith("image/"):
                images.append(Attachment("image", each.mime_type or "", data=each.blob))
            case _:
                kind = each.mime_type or "of unknown type"
                unread.append(f"{kind}, {decoded_bytes(each.blob)} bytes")
    mime_type = next((each.mime_type for each in found.contents if each.mime_type), None)
    return Content(tuple(texts), tuple(images), tuple(unread), mime_type)


def of_message(blocks: Sequence[ContentBlock]) -> Content:
    """What a message of a prompt says."""
    texts: list[str] = []
    images: list[Attachment] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ImageContent():
                images.append(Attachment("image", block.mime_type, data=block.data))
            case EmbeddedResource(resource=BlobResourceContents(mime_type=str(kind)) as found) if kind.startswith(
                "image/"
            ):
                images.append(Attachment("image", kind, data=found.blob))
            case _:
                texts.append(content_text(block))
    return Content(tuple(texts), tuple(images))
