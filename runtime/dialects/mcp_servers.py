"""An MCP server that a request brings by its URL: what its fields may say, whatever a dialect calls them. Pure.

No error repeats a value: a URL may be a secret, and headers mostly are.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import httpx2

from tenuto.errors import InvalidRequest
from tenuto.tools.host.requested import RequestedServer

MOST_URL_CHARACTERS = 4096
MOST_HEADERS = 32
MOST_HEADER_BYTES = 16 << 10
"""Of all headers together."""

_LABEL = re.compile(r"(?!.*__)[A-Za-z0-9_-]{0,47}[A-Za-z0-9-]")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_NOT_THEIRS = frozenset(
    [
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
"""Headers that say how messages are carried."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What a request calls the fields of a server."""

    label: str
    url: str
    headers: str
    token: str


def requested_server(
    label: str, url: str, fields: Fields, *, headers: Mapping[str, str] | None = None, token: str | None = None
) -> RequestedServer:
    """A server as a request brings it. `token` is sent as a bearer's.

    Raises:
        InvalidRequest: a field cannot be what it says.
    """
    if _LABEL.fullmatch(label) is None:
        _refuse(fields.label, "must have 1 to 48 letters, digits, '-' or '_', not two '_' in a row and none at its end")
    _check_url(url, fields.url)
    sent = _checked_headers(headers or {}, fields.headers)
    if token is not None:
        if _TOKEN.fullmatch(token) is None or len(token) > MOST_HEADER_BYTES:
            _refuse(fields.token, "must be a token alone, without a word before it, of visible ASCII characters")
        if any(name.lower() == "authorization" for name in sent):
            _refuse(fields.token, f"{fields.headers} has an Authorization too; give only one")
        sent["Authorization"] = f"Bearer {token}"
    return RequestedServer(label, url, sent, fields.url)


def shown_url(url: str) -> str:
    """What of a server's URL may be shown and kept: some are secret by their path."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return ""
    return str(parsed.copy_with(userinfo=b"", raw_path=b"/", fragment=None)).removesuffix("/")


def _check_url(text: str, param: str) -> None:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        _refuse(param, "is not a URL")
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host:
        _refuse(param, "must be a URL that begins with http:// or https:// and names a host")
    if url.userinfo:
        _refuse(param, "must not hold a user's name or password; give them as a header")
    if url.port == 0 or len(text) > MOST_URL_CHARACTERS:
        _refuse(param, f"must name a port from 1 on and have at most {MOST_URL_CHARACTERS} characters")


def _checked_headers(headers: Mapping[str, str], param: str) -> dict[str, str]:
    if sum(map(len, (*headers, *headers.values()))) > MOST_HEADER_BYTES:
        _refuse(param, f"must be at most {MOST_HEADER_BYTES} bytes together")
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            _refuse(param, "must be names and values of HTTP headers, in ASCII")
        lower = name.lower()
        if lower in _NOT_THEIRS or lower.startswith(("proxy-", "mcp-")):
            _refuse(param, f"{lower} is not for a request to set")
    return dict(headers)


def _refuse(param: str, problem: str) -> NoReturn:
    raise InvalidRequest(f"{param}: {problem}", param)
