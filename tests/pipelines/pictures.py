"""Small pictures that nobody has seen, in base64."""

import base64
import io

import numpy as np
from PIL import Image


def picture(seed: int, width: int = 40, height: int = 24, kind: str = "PNG") -> str:
    """A picture of noise; each seed has its own."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return encoded(Image.fromarray(pixels), kind)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> str:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return base64.b64encode(file.getvalue()).decode()
