"""What resources and messages of prompts hold, in our words: text, images, and a note for whatever else there is."""

import re
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

# A model reads it in the line that says which resource follows: nothing else may stand there.
_MOST_TYPE = 128
_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}(; ?[\w.=\"+-]{1,64})*", re.ASCII)


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
        kind = _type(each.mime_type)
        match each:
            case TextResourceContents():
                texts.append(each.text)
            case BlobResourceContents() if kind is not None and kind.startswith("image/"):
                images.append(Attachment("image", kind, data=each.blob))
            case _:
                unread.append(f"{kind or 'of unknown type'}, {decoded_bytes(each.blob)} bytes")
    mime_type = next((kind for each in found.contents if (kind := _type(each.mime_type))), None)
    return Content(tuple(texts), tuple(images), tuple(unread), mime_type)


def _type(told: str | None) -> str | None:
    """A media type, where it is one."""
    return told if told is not None and len(told) <= _MOST_TYPE and _TYPE.fullmatch(told) else None


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
