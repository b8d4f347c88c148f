"""The requests of a login itself: bounded in time and size, and only to where whoever leads there may lead."""

import json
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from tenuto.tools.egress import Egress, is_public
from tenuto.tools.host.pinned import PinnedTransport, addresses_of

_FETCH_S = 20.0
_MOST_BYTES = 1 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CODES = frozenset(
    {
        *("access_denied", "consent_required", "insufficient_user_authentication", "interaction_required"),
        *("invalid_client", "invalid_client_metadata", "invalid_dpop_proof", "invalid_grant", "invalid_redirect_uri"),
        *("invalid_request", "invalid_scope", "invalid_target", "invalid_token", "login_required", "server_error"),
        *("temporarily_unavailable", "unauthorized_client", "unsupported_grant_type", "unsupported_token_type"),
        *("use_dpop_nonce",),
    }
)
"""Those that are registered. Any other word may be what the server was sent."""


class LoginFailed(Exception):
    """A token cannot be had; the words have no secret. `is_final`: trying again will not help, a person must."""

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Leader:
    """Whose word says where a request goes: that of the server at `url`. What the operator has `named` besides is
    trusted as that server is."""

    url: str
    named: str | None = None

    async def egress(self, url: httpx2.URL) -> Egress:
        """Where it may lead us: to itself and to what is named, else only as far as it is itself. One on the internet
        leads nobody into our own network, and one behind TLS not out of it. Raises LoginFailed."""
        own = httpx2.URL(self.url)
        if own.scheme == "https" and url.scheme != "https":
            raise LoginFailed(f"{own.host} leads from https to http")
        known = {own.host, httpx2.URL(self.named).host if self.named else own.host}
        if url.host in known or (own.host in _LOOPBACK and url.host in _LOOPBACK):
            return Egress.ALL
        there = await addresses_of(own.host, own.port or 443)
        return Egress.PUBLIC if all(map(is_public, there)) else Egress.ALL


async def fetch(request: httpx2.Request, leader: Leader) -> httpx2.Response:
    """Make one; its answer is whole, and redirects are not followed. Raises LoginFailed."""
    try:
        with anyio.fail_after(_FETCH_S):
            transport = PinnedTransport(await leader.egress(request.url))
            async with httpx2.AsyncClient(transport=transport, timeout=_FETCH_S) as http:
                response = await http.send(request, stream=True)
                body = bytearray()
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > _MOST_BYTES:
                        raise LoginFailed(f"{_place(request)} answers more than {_MOST_BYTES} bytes")
    except (httpx2.HTTPError, TimeoutError) as exc:
        why = str(exc) or type(exc).__name__
        raise LoginFailed(f"{_place(request)} cannot be reached: {why}", is_final=False) from None
    if request.method == "POST" and response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
        raise LoginFailed(f"{_place(request)} answers HTTP {response.status_code}", is_final=False)
    return httpx2.Response(response.status_code, headers=response.headers, content=bytes(body), request=request)


def refusal_of(response: httpx2.Response) -> str:
    """Who refuses, and by which code of OAuth; without what else the server says."""
    found = object_of(response).get("error")
    code = f" ({found})" if isinstance(found, str) and found in _CODES else ""
    return f"{_place(response.request)} refuses with HTTP {response.status_code}{code}"


def object_of(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object that it is; else an empty one."""
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _place(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
