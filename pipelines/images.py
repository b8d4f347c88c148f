"""Images on their way to a model: what is read of one, what stands for it in a ledger, and what it is to the weights.

The Protocols here are implemented by a backend's pipeline. No files, no network: an image is its bytes.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from tenuto.sessions.image_tokens import Span
from tenuto.sessions.items import Attachment, Item, ToolResultItem, UserItem

_KNOWN_CHARACTERS = 64 << 20


class UnreadableImage(Exception):
    """What was to be an image is none, or is too large. The text says so, and goes on after the image's name."""


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded image, in base64. Equal digests, equal images."""

    digest: str
    data: str = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an image that one span stands for: some are cut into tiles, with text tokens between them."""

    image: Image
    number: int
    span: Span = field(repr=False)


@dataclass(frozen=True, slots=True)
class ImageText:
    """What stands for an image in a ledger: tokens, those of the model that mark it among them, and its pieces."""

    tokens: tuple[int, ...] = field(repr=False)
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The positions of a piece's rows in several dimensions, a row for each dimension."""

    at_zero: NDArray[np.int32] = field(repr=False)
    """Where the piece begins at position 0."""
    slope: NDArray[np.int32] = field(repr=False)
    """What each of them grows by where it begins one later."""

    def starting(self, first: int) -> NDArray[np.int32]:
        """Where the piece begins at that position."""
        return self.at_zero + self.slope * np.int32(first)


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """A piece as the weights take it: a row for each of its image tokens, in order.

    It takes `extent` positions; `places` tells them where a model has them in several dimensions. `attends_all`: its
    rows attend to each other both ways, and are fed at once.
    """

    rows: NDArray[np.float32] = field(repr=False)
    extent: int
    places: Places | None = None
    attends_all: bool = False

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return self.rows.nbytes + (0 if self.places is None else 2 * self.places.at_zero.nbytes)


class ImageReader(Protocol):
    """What a codec needs to know of a model's images. Any thread."""

    @property
    def identity(self) -> bytes:
        """Names what the tokens of an image depend on, besides the image."""

    def read(self, image: Image) -> ImageText:
        """What stands for an image. It takes a while at first; what was read is remembered.

        Raises:
            UnreadableImage: it cannot be decoded, or is too large.
        """


class ImageEncoder(Protocol):
    """Makes embeddings of images, one after the other, in a thread of its own."""

    def embeddings(self, piece: Piece, ready: Callable[[], None]) -> Embeddings | None:
        """Those of a piece. None where they are being made: `ready` is called when they are there, by another thread.

        Engine thread only.

        Raises:
            GenerationFailed: they cannot be made.
        """


class ReadImages:
    """What messages carry, as a model reads it. Any thread."""

    def __init__(self, reader: ImageReader) -> None:
        self._reader, self._digests = reader, _Digests()

    def hidden(self, attachment: Attachment) -> str | None:
        """Why the model does not see something, in words; None where it sees it."""
        if attachment.kind != "image":
            return "the model reads text and images only"
        if attachment.data is None:
            return "images are not fetched from where they lie"
        try:
            self._read(attachment.data)
        except UnreadableImage as error:
            return f"it {error}"
        return None

    def tokens(self, attachment: Attachment) -> tuple[int, ...]:
        """What stands in a ledger for an image that is not hidden."""
        assert attachment.data is not None
        return self._read(attachment.data).tokens

    def pieces(self, items: Sequence[Item]) -> tuple[Piece, ...]:
        """The pieces of all images in these items that are not hidden."""
        carrying = (item for item in items if isinstance(item, UserItem | ToolResultItem))
        images = (one for item in carrying for one in item.attachments if self.hidden(one) is None)
        return tuple(piece for one in images if one.data is not None for piece in self._read(one.data).pieces)

    def _read(self, data: str) -> ImageText:
        return self._reader.read(self._digests.image(data))


class _Digests:
    """Digests of what carries images. The same object is digested once, as long as it is remembered. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The text is held with it, so that no other one gets its id.
        self._known: LRUCache[int, Image] = LRUCache(_KNOWN_CHARACTERS, lambda image: len(image.data))

    def image(self, data: str) -> Image:
        """An image by what carries it, in base64."""
        with self._lock:
            known = self._known.get(id(data))
        if known is not None and known.data is data:
            return known
        image = Image(hashlib.sha256(data.encode()).hexdigest(), data)
        if len(data) <= _KNOWN_CHARACTERS:
            with self._lock:
                self._known[id(data)] = image
        return image
