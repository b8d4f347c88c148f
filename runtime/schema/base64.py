"""Bytes that clients send as text."""

from base64 import b64decode
from binascii import Error as NotBase64

from tenuto.errors import InvalidRequest


def expect_base64(text: str, param: str) -> None:
    """Raise InvalidRequest where a text is not base64."""
    try:
        b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise InvalidRequest(f"{param}: not base64", param) from None
