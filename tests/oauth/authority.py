"""A real authorization server for tests: the SDK's handlers on a real socket, with a store of their own and JWTs."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    IdentityAssertionParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.patience import HANGS_S

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk_of(key: rsa.RSAPrivateKey, kid: str, **more: Any) -> dict[str, Any]:
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", **more}


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Everybody who asks is `subject`, and consents. Refresh tokens are good once."""

    def __init__(self) -> None:
        self.url = ""
        self.subject = "ada"
        self.lifetime_s = 3600
        self.granted: str | None = None
        """The scopes that are given, whatever is asked for; None: those that are asked for."""
        self.signing, self.kid = KEY, "first"
        self.jwks: list[dict[str, Any]] = [jwk_of(KEY, "first")]
        self.asked: list[str] = []
        self.shown: set[str] = set()
        """The ids of clients that were shown to it."""
        self.renewals = 0
        """How often it was asked for one."""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refreshes: dict[str, RefreshToken] = {}
        self.resources: dict[str, str] = {}
        self.trusted: dict[str, Any] = {}
        """The public keys of identity providers whose assertions are taken, by their issuers."""
        self.presented: list[str] = []
        """The assertions, each of which is good once."""

    def token(self, audience: str, *, scope: str | None = "tenuto:run", key: Any = None, **claims: Any) -> str:
        now = int(time.time())
        usual = {"iss": self.url, "sub": self.subject, "aud": audience, "iat": now, "exp": now + self.lifetime_s}
        told = {name: value for name, value in {**usual, "scope": scope, **claims}.items() if value is not None}
        return jwt.encode(told, key or self.signing, "RS256", {"kid": self.kid, "typ": "at+jwt"})

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        self.shown.add(client_id)
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        client_info.scope = "tenuto:read tenuto:run tenuto:person tenuto:admin"  # what it may ask for
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=(self.granted or " ".join(params.scopes or ["tenuto:run"])).split(),
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=self.url)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client.client_id, authorization_code.scopes, authorization_code.resource or "")

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        self.renewals += 1
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshes.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        resource = self.resources[refresh_token.token]
        return self._tokens(client.client_id, scopes or refresh_token.scopes, resource)

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        is_new = params.assertion not in self.presented
        self.presented.append(params.assertion)
        try:
            issuer = jwt.decode(params.assertion, options={"verify_signature": False})["iss"]
            claims = jwt.decode(
                params.assertion,
                self.trusted[issuer],
                ["RS256"],
                audience=self.url,
                options={"require": ["exp", "sub"]},
            )
        except (jwt.PyJWTError, KeyError):
            raise TokenError("invalid_grant") from None
        is_grant = jwt.get_unverified_header(params.assertion)["typ"] == "oauth-id-jag+jwt"
        if not (is_new and is_grant and claims["client_id"] == client.client_id):
            raise TokenError("invalid_grant")
        scope = claims.get("scope", "tenuto:run")
        token = self.token(claims["resource"], scope=scope, sub=claims["sub"], jti=secrets.token_hex(8))
        return OAuthToken(access_token=token, token_type="Bearer", expires_in=self.lifetime_s, scope=scope)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.refreshes.pop(token.token, None)

    def _tokens(self, client: str, scopes: list[str], resource: str) -> OAuthToken:
        refresh = f"refresh-{secrets.token_urlsafe(24)}"
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        self.resources[refresh] = resource
        return OAuthToken(
            access_token=self.token(resource, scope=" ".join(scopes), jti=secrets.token_hex(8)),
            token_type="Bearer",
            expires_in=self.lifetime_s,
            refresh_token=refresh,
            scope=" ".join(scopes),
        )

    def app(self) -> Starlette:
        issuer = AnyHttpUrl(self.url)
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=None)
        metadata = build_metadata(issuer, None, registration, RevocationOptions())
        told = {
            **metadata.model_dump(mode="json", exclude_none=True),
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "authorization_response_iss_parameter_supported": True,
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        }

        async def describe(request: Request) -> Response:
            self.asked.append(request.url.path)
            return JSONResponse(told)

        async def keys(request: Request) -> Response:
            self.asked.append(request.url.path)
            return JSONResponse({"keys": self.jwks})

        routes = create_auth_routes(
            self, issuer, client_registration_options=registration, identity_assertion_enabled=True
        )
        own = [Route("/.well-known/oauth-authorization-server", describe), Route("/jwks", keys)]
        return Starlette(routes=[*own, *routes])


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an ASGI application in a thread; its URL. An application that needs its URL is made by a function."""
    config = uvicorn.Config(
        lambda *a: None, port=0, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    config.app = app(url) if callable(app) and not isinstance(app, Starlette) else app
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = server.force_exit = True
        thread.join(HANGS_S)
        socket.close()


@contextmanager
def authority() -> Iterator[Authority]:
    one = Authority()

    def made(url: str) -> Starlette:
        one.url = url
        return one.app()

    with listening(made):
        yield one
