"""The SDK's OAuth flows, driven for what is kept of a login. Their own requests go a bounded way of their own.

The SDK's provider begins with a request that is refused. Here the request is not sent: what the server has said before
answers it, and what the provider learns is kept, also what it would forget at a restart.
"""

import logging

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from tenuto.tools.egress import Egress, is_public
from tenuto.tools.host.pinned import PinnedTransport, addresses_of
from tenuto.tools.host.token_file import Kept
from tenuto.tools.mcp_credentials import OAuthSettings

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)
"""It logs what servers answer, with whatever they echo; what goes wrong is told by whoever has asked."""

_FETCH_S = 20.0
_MOST_BYTES = 1 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class LoginFailed(Exception):
    """A token cannot be had; the words have no secret. `is_final`: trying again will not help, a person must."""

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


class _Storage:
    """What the SDK's provider knows as storage."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def get_tokens(self) -> OAuthToken | None:
        return self._kept.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._kept.take(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._kept.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._kept.client = client_info


class Person:
    """How a person is asked, at a login."""

    redirect_uri = "http://127.0.0.1/callback"

    async def ask(self, url: str) -> None:  # noqa: ARG002  (nobody is there to see it)
        """Show them where to log in."""
        raise LoginFailed("a person must log in")

    async def answer(self) -> AuthorizationCodeResult:
        """What they have brought back."""
        raise LoginFailed("a person must log in")


async def renew(kept: Kept, settings: OAuthSettings) -> None:
    """New tokens by the refresh token, into `kept`. Raises LoginFailed."""
    if kept.tokens is None or kept.tokens.refresh_token is None or kept.client is None:
        raise LoginFailed("there is nothing to renew it by")
    before = kept.tokens.access_token
    provider = _provider(kept, settings, Person())
    provider.context.token_expiry_time = 1.0
    await _drive(provider, kept, settings, httpx2.Response(200))
    if kept.tokens is None or kept.tokens.access_token == before:
        raise LoginFailed("the authorization server does not renew it")


async def obtain(kept: Kept, settings: OAuthSettings, refusal: httpx2.Response, person: Person | None = None) -> None:
    """Tokens from the beginning, into `kept`, as a server's refusal tells how. Raises LoginFailed."""
    kept.tokens = kept.expires_at = None
    await _drive(_provider(kept, settings, person or Person()), kept, settings, refusal)
    if kept.tokens is None:
        raise LoginFailed("the authorization server gave no token")


def _provider(kept: Kept, settings: OAuthSettings, person: Person) -> OAuthClientProvider:
    storage = _Storage(kept)
    provider: OAuthClientProvider
    if settings.grant == "client_credentials":
        assert settings.client_id is not None
        assert settings.client_secret is not None
        provider = ClientCredentialsOAuthProvider(
            kept.url,
            storage,
            settings.client_id,
            settings.client_secret,
            scope=settings.scope,
            issuer=settings.issuer,
        )
    else:
        if settings.client_id is not None:
            kept.client = _known_client(settings, person)
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(person.redirect_uri)], client_name="Tenuto", scope=settings.scope
        )
        provider = OAuthClientProvider(
            kept.url, metadata, storage, person.ask, person.answer, client_metadata_url=settings.client_metadata_url
        )
    context = provider.context
    context.oauth_metadata, context.protected_resource_metadata = kept.metadata, kept.resource
    if kept.resource is not None and kept.resource.authorization_servers:
        context.auth_server_url = str(kept.resource.authorization_servers[0])
    return provider


def _known_client(settings: OAuthSettings, person: Person) -> OAuthClientInformationFull:
    assert settings.client_id is not None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=[AnyUrl(person.redirect_uri)],
        token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        issuer=settings.issuer,
    )


async def _drive(provider: OAuthClientProvider, kept: Kept, settings: OAuthSettings, refusal: httpx2.Response) -> None:
    """Let the provider do its work; `refusal` answers the request that it is about."""
    request = httpx2.Request("POST", kept.url, headers={"mcp-protocol-version": "2025-11-25"})
    answers = iter((refusal,))
    flow = provider.async_auth_flow(request)
    try:
        outgoing = await anext(flow)
        while True:
            if outgoing is request:
                response = next(answers, None) or httpx2.Response(200)
                response.request = request
            else:
                response = await _fetch(outgoing, kept.url, settings)
            outgoing = await flow.asend(response)
    except StopAsyncIteration:
        pass
    except OAuthFlowError as exc:
        raise LoginFailed(_words(exc)) from None
    except (ValidationError, ValueError, httpx2.InvalidURL) as exc:
        raise LoginFailed(f"the authorization server answers what it should not ({type(exc).__name__})") from None
    finally:
        await flow.aclose()
    kept.metadata, kept.resource = provider.context.oauth_metadata, provider.context.protected_resource_metadata


def _words(exc: OAuthFlowError) -> str:
    """What went wrong, without what a server has said: that may hold what it was sent."""
    first = str(exc).partition("{")[0].partition("\n")[0].strip(" :")
    return "the state that came back is not ours" if first.startswith("State") else first[:200]


async def _fetch(request: httpx2.Request, server: str, settings: OAuthSettings) -> httpx2.Response:
    """One of the provider's own requests. Raises LoginFailed."""
    try:
        with anyio.fail_after(_FETCH_S):
            transport = PinnedTransport(await _egress(request.url, httpx2.URL(server), settings))
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


async def _egress(url: httpx2.URL, server: httpx2.URL, settings: OAuthSettings) -> Egress:
    """Where a server may lead us: to itself and to the issuer that was configured, else only as far as it is itself.
    One on the internet leads nobody into our own network, and one behind TLS not out of it."""
    if server.scheme == "https" and url.scheme != "https":
        raise LoginFailed("the server leads from https to http")
    own = {server.host, httpx2.URL(settings.issuer).host if settings.issuer else server.host}
    if url.host in own or (server.host in _LOOPBACK and url.host in _LOOPBACK):
        return Egress.ALL
    there = await addresses_of(server.host, server.port or 443)
    return Egress.PUBLIC if all(map(is_public, there)) else Egress.ALL


def _place(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
