"""A small JSON document of an authorization server: with bounds, without redirects, to an address that was checked."""

import json
from typing import Any

import anyio
import httpx2

from tenuto.tools.egress import Egress
from tenuto.tools.host.pinned import PinnedTransport

MOST_BYTES = 256 << 10
_SILENCE_S = 5.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class FetchFailed(Exception):
    """A document cannot be had; the text says why."""


async def fetch_json(url: str, egress: Egress) -> dict[str, Any]:
    """The JSON object at a URL. Its caller bounds the whole time.

    Raises:
        FetchFailed: there is none, or it is too large.
    """
    try:
        async with (
            httpx2.AsyncClient(transport=PinnedTransport(egress), headers=_HEADERS, timeout=_SILENCE_S) as http,
            http.stream("GET", url) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise FetchFailed(f"{url} answers HTTP {response.status_code}")
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MOST_BYTES:
                    raise FetchFailed(f"{url} has more than {MOST_BYTES} bytes")
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as exc:
        raise FetchFailed(f"{url} cannot be reached: {exc or type(exc).__name__}") from exc
    try:
        value = await anyio.to_thread.run_sync(json.loads, bytes(body))
    except (ValueError, RecursionError) as exc:
        raise FetchFailed(f"{url} is no JSON") from exc
    if not isinstance(value, dict):
        raise FetchFailed(f"{url} is no JSON object")
    return value
