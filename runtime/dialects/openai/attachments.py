"""What messages carry besides text, in the forms that OpenAI's requests share: images, sound and files."""

import re

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.runtime.schema.base64 import expect_base64
from tenuto.sessions.items import Attachment

_DATA_URI = re.compile(r"data:([A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+)(?:;[A-Za-z0-9=._-]+)*;base64,", re.ASCII)
_LONGEST_URL = 8192


def image(url: str, path: str) -> Attachment:
    """An image: where it lies, or a data URI that holds it. Raises InvalidRequest."""
    if url.startswith("data:"):
        mime_type, data = _data_uri(url, path)
        if not mime_type.startswith("image/"):
            raise InvalidRequest(f"{path}: {mime_type} is not an image type", path)
        return Attachment("image", mime_type, data=data)
    _expect_address(url, path)
    return Attachment("image", "image/*", uri=url)


def audio(data: str, encoding: str, path: str) -> Attachment:
    """Sound, in base64. Raises InvalidRequest."""
    expect_base64(data, path)
    return Attachment("audio", f"audio/{encoding}", data=data)


def file(uri: str, path: str) -> Attachment:
    """A file: a data URI that holds it. Raises InvalidRequest."""
    mime_type, data = _data_uri(uri, path)
    return Attachment("file", mime_type, data=data)


def file_at(url: str, path: str) -> Attachment:
    """A file, by where it lies. Raises InvalidRequest."""
    _expect_address(url, path)
    return Attachment("file", "application/octet-stream", uri=url)


def refuse_file_id(path: str) -> None:
    """Raise UnsupportedParameter: files are not kept here."""
    raise UnsupportedParameter(f"{path}: files are not kept here; send file_data", path)


def _expect_address(url: str, path: str) -> None:
    if not url.startswith(("https://", "http://")) or len(url) > _LONGEST_URL:
        raise InvalidRequest(f"{path}: must be an http(s) address or a data URI", path)


def _data_uri(uri: str, path: str) -> tuple[str, str]:
    head = _DATA_URI.match(uri)
    if head is None:
        raise InvalidRequest(f"{path}: must be a data URI in base64, data:TYPE;base64,DATA", path)
    data = uri[head.end() :]
    expect_base64(data, path)
    return head[1].lower(), data
