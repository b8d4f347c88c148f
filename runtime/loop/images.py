"""Images in what a request brings: refused before anything changes, where the model would not see them."""

from collections.abc import Iterator, Sequence

from anyio import CapacityLimiter, to_thread

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import Codec
from tenuto.sessions.items import Attachment, Item, ToolResultItem, UserItem

MOST_IMAGES = 64
"""In the new messages of one request."""
LOOKING = CapacityLimiter(2)
"""Worker threads that look at images at a time: all others are for what everybody waits for."""


def may_see(codec: Codec, items: Sequence[Item]) -> bool:
    """Whether there are images among these that the model may have to look at, which takes a while."""
    return "image" in codec.info.modalities and next(_images(items), None) is not None


async def check_images(codec: Codec, items: Sequence[Item]) -> None:
    """Refuse what a user sends as images to a model that reads them and is none, or lies elsewhere, or is too much.

    What comes as a tool's result is not refused: a note stands in its place.

    Raises:
        InvalidRequest: the text says which, and why.
    """
    if not may_see(codec, items):
        return
    if sum(1 for _ in _images(items)) > MOST_IMAGES:
        raise InvalidRequest(f"a request brings {MOST_IMAGES} images at most", "messages")
    images = list(_images([item for item in items if isinstance(item, UserItem)]))
    await to_thread.run_sync(_check, codec, images, limiter=LOOKING)


def _check(codec: Codec, images: Sequence[Attachment]) -> None:
    for number, image in enumerate(images, 1):
        if image.data is None:
            raise InvalidRequest(
                f"image {number} of the request is not fetched from {str(image.uri)[:80]}: send it as a data: URL",
                "messages",
            )
        if (why := codec.unseen(image)) is not None:
            raise InvalidRequest(f"image {number} of the request cannot be read: {why}", "messages")


def _images(items: Sequence[Item]) -> Iterator[Attachment]:
    carrying = (item for item in items if isinstance(item, UserItem | ToolResultItem))
    return (one for item in carrying for one in item.attachments if one.kind == "image")
