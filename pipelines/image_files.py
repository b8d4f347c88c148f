"""Image files to pixels. Importing this needs Pillow."""

import base64
import binascii
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Decoder
from PIL import ImageOps, UnidentifiedImageError

from tenuto.pipelines.images import UnreadableImage

MAX_PIXELS = 40_000_000
"""Decoded, that is 120 MB."""
MAX_BYTES = 32 << 20
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")

Pixels = NDArray[np.uint8]
"""Of shape (height, width, 3), red, green and blue."""


def decoded(data: str) -> Pixels:
    """The pixels of an image in base64, turned as its camera was held; what is transparent lies on white.

    Raises:
        UnreadableImage: it cannot be decoded, or is too large.
    """
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableImage("is not valid base64") from None
    if len(body) > MAX_BYTES:
        raise UnreadableImage(f"has {len(body)} bytes; {MAX_BYTES} are the most")
    try:
        with Decoder.open(io.BytesIO(body), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:  # before any of them is decoded
                raise UnreadableImage(f"has {width} x {height} pixels; {MAX_PIXELS} are the most")
            turned = ImageOps.exif_transpose(opened)
            return np.asarray(_on_white(turned))
    except UnreadableImage:
        raise
    except UnidentifiedImageError:
        raise UnreadableImage(f"is none of {', '.join(FORMATS)}") from None
    except Exception as error:  # whatever a decoder makes of bytes that somebody has sent
        raise UnreadableImage(f"cannot be decoded: {error}") from error


def _on_white(image: Decoder.Image) -> Decoder.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    white = Decoder.new("RGB", layer.size, "white")
    white.paste(layer, mask=layer.getchannel("A"))
    return white
