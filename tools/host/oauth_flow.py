"""The SDK's OAuth flows, driven for what is kept of a login. Their own requests go a bounded way (`oauth_fetch`).

The SDK's provider begins with a request that is refused. Here the request is not sent: what the server has said before
answers it, and what the provider learns is kept, also what it would forget at a restart.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import httpx2
from jwt import get_algorithm_by_name
from jwt.exceptions import InvalidKeyError
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import extract_scope_from_www_auth
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from tenuto.tools.host.identity_provider import assertion_of
from tenuto.tools.host.oauth_fetch import Leader, LoginFailed, fetch, refusal_of
from tenuto.tools.host.token_file import Kept
from tenuto.tools.mcp_credentials import IdentityProvider, OAuthSettings

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)
"""It logs what servers answer, with whatever they echo; what goes wrong is told by whoever has asked."""

_ALGORITHMS = ("RS256", "ES256", "ES384", "ES512", "EdDSA")


class _Storage:
    """What the SDK's provider knows as storage."""

    def __init__(self, kept: Kept, settings: OAuthSettings) -> None:
        self._kept, self._settings = kept, settings

    async def get_tokens(self) -> OAuthToken | None:
        return self._kept.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._kept.take(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._kept.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if self._settings.client_id is not None:  # another is registered only where that one is not to be shown
            raise LoginFailed(
                "the server names another authorization server than that of the client in its entry; "
                f"if that is right, correct `issuer`, or run `tenuto mcp logout {self._settings.name}` first"
            )
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
    await _log_in(provider, kept, settings, httpx2.Response(200))
    if kept.tokens is None or kept.tokens.access_token == before:
        raise LoginFailed("the authorization server does not renew it")


async def obtain(kept: Kept, settings: OAuthSettings, refusal: httpx2.Response, person: Person | None = None) -> None:
    """Tokens from the beginning, into `kept`, as a server's refusal tells how. Raises LoginFailed."""
    kept.tokens = kept.expires_at = None
    if settings.idp is not None:
        asserting = _asserting(kept, settings, settings.idp, extract_scope_from_www_auth(refusal) or settings.scope)
        await _drive(asserting, kept.url, Leader(settings.issuer or ""), refusal)
        scope = None
    else:
        provider = _provider(kept, settings, person or Person())
        await _log_in(provider, kept, settings, refusal)
        scope = provider.context.client_metadata.scope
    if kept.tokens is None:
        raise LoginFailed("the authorization server gave no token")
    if kept.tokens.scope is None:  # what was asked for was granted
        kept.tokens.scope = scope


def _asserting(kept: Kept, settings: OAuthSettings, idp: IdentityProvider, scope: str | None) -> httpx2.Auth:
    """Presents what the identity provider asserts. The server has no say in where, and none of it is kept."""
    assert settings.client_id is not None
    assert settings.client_secret is not None
    assert settings.issuer is not None
    return IdentityAssertionOAuthProvider(
        kept.url,
        _Storage(kept, settings),
        settings.client_id,
        settings.client_secret,
        settings.issuer,
        partial(assertion_of, idp, scope),
        scope=scope,
        token_endpoint_auth_method="client_secret_basic",
    )


async def _log_in(provider: OAuthClientProvider, kept: Kept, settings: OAuthSettings, refusal: httpx2.Response) -> None:
    """Have the provider do so, and keep what it finds out on its way. Raises LoginFailed."""
    await _drive(provider, kept.url, Leader(kept.url, settings.issuer), refusal)
    kept.metadata, kept.resource = provider.context.oauth_metadata, provider.context.protected_resource_metadata


def _provider(kept: Kept, settings: OAuthSettings, person: Person) -> OAuthClientProvider:
    storage = _Storage(kept, settings)
    provider: OAuthClientProvider
    if settings.private_key is not None:
        assert settings.client_id is not None
        provider = PrivateKeyJWTOAuthProvider(
            kept.url,
            storage,
            settings.client_id,
            _assertions(settings.client_id, settings.private_key),
            scope=settings.scope,
            issuer=settings.issuer,
        )
    elif settings.grant == "client_credentials":
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
            kept.client = _known_client(settings, person, _issuer_of(kept, settings))
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


def _assertions(client_id: str, key: str) -> Callable[[str], Awaitable[str]]:
    """Makes what proves the client, signed as its key can. Raises LoginFailed where that is no key."""
    for algorithm in _ALGORITHMS:
        with suppress(ValueError, TypeError, InvalidKeyError):
            get_algorithm_by_name(algorithm).prepare_key(key)
            signing = SignedJWTParameters(
                issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=algorithm
            )
            return signing.create_assertion_provider()
    raise LoginFailed(f"oauth.private_key is no private key in PEM for one of {', '.join(_ALGORITHMS)}")


def _issuer_of(kept: Kept, settings: OAuthSettings) -> str | None:
    """The authorization server to which the client in the entry belongs: as the entry says, or where it was used."""
    was_used = kept.client is not None and kept.client.client_id == settings.client_id
    if settings.issuer or not was_used:
        return settings.issuer
    assert kept.client is not None
    return kept.client.issuer or (str(kept.metadata.issuer) if kept.metadata else None)


def _known_client(settings: OAuthSettings, person: Person, issuer: str | None) -> OAuthClientInformationFull:
    assert settings.client_id is not None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=[AnyUrl(person.redirect_uri)],
        token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        issuer=issuer,
    )


async def _drive(auth: httpx2.Auth, url: str, leader: Leader, refusal: httpx2.Response) -> None:
    """Let a provider do its work; `refusal` answers the request to the URL that it is about. Raises LoginFailed."""
    request = httpx2.Request("POST", url, headers={"mcp-protocol-version": "2025-11-25"})
    answers = iter((refusal,))
    refused = ""
    flow = auth.async_auth_flow(request)
    try:
        outgoing = await anext(flow)
        while True:
            if outgoing is request:
                response = next(answers, None) or httpx2.Response(200)
                response.request = request
            else:
                response = await fetch(outgoing, leader)
                refused = refusal_of(response) if outgoing.method == "POST" and not response.is_success else ""
            outgoing = await flow.asend(response)
    except StopAsyncIteration:
        pass
    except OAuthFlowError as exc:
        raise LoginFailed(refused or _words(exc)) from None
    except (ValidationError, ValueError, httpx2.InvalidURL) as exc:
        raise LoginFailed(f"the authorization server answers what it should not ({type(exc).__name__})") from None
    finally:
        await flow.aclose()


def _words(exc: OAuthFlowError) -> str:
    """What went wrong, without what a server has said: that may hold what it was sent."""
    first = str(exc).partition("{")[0].partition("\n")[0].strip(" :")
    return "the state that came back is not ours" if first.startswith("State") else first[:200]
