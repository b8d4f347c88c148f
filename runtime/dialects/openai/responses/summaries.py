"""The summary of a conversation in the field that clients send back unread. It is packed, not encrypted. Pure."""

import binascii
from base64 import b64decode, b64encode

HEADING = "[Summary of the conversation so far]\n"
_OURS = "tenuto-summary-1."


def packed(summary: str) -> str:
    """A summary as clients keep it."""
    return _OURS + b64encode(summary.encode()).decode()


def unpacked(content: object) -> str | None:
    """The summary; None where it is none of ours."""
    if not isinstance(content, str) or not content.startswith(_OURS):
        return None
    try:
        return b64decode(content.removeprefix(_OURS), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
