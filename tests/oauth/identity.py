"""An organisation's identity provider for tests, on a real socket."""

import base64
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.oauth.authority import listening

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CLIENT, SECRET = "tenuto-at-the-idp", "canary of/the:idp"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type"


class Identities:
    """It knows one client, which is `known` at the authorization servers that trust it."""

    def __init__(self) -> None:
        self.url = ""
        self.secret: str | None = None
        self.methods: list[str] | None = None
        self.issued = f"{TYPE}:id-jag"
        self.token_endpoint = ""
        """The one that its metadata name; else its own."""
        self.refusal: dict[str, Any] | None = None
        """What is answered to each exchange instead."""
        self.asked: list[dict[str, str]] = []
        """The exchanges, with how the client proved itself as `by`."""

    def id_token(self, subject: str = "ada", lasts_s: float = 300, **claims: Any) -> str:
        now = time.time()
        usual = {"iss": self.url, "sub": subject, "aud": CLIENT, "iat": now - 600, "exp": now + lasts_s}
        return jwt.encode({**usual, **claims}, KEY, "RS256")

    def _client(self, request: Request, form: dict[str, str]) -> tuple[str, str | None, str]:
        if (basic := request.headers.get("authorization", "")).startswith("Basic "):
            name, _, secret = base64.b64decode(basic[6:]).decode().partition(":")
            return unquote(name), unquote(secret), "basic"
        return form.get("client_id", ""), form.get("client_secret"), "post" if "client_secret" in form else "none"

    async def exchange(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        client, secret, by = self._client(request, form)
        self.asked.append({**form, "by": by})
        if self.refusal is not None:
            return JSONResponse({**self.refusal, "error_description": str(form)}, 400)
        if (client, secret) != (CLIENT, self.secret):
            return JSONResponse({"error": "invalid_client"}, 401)
        kinds = (form["grant_type"], form["requested_token_type"], form["subject_token_type"])
        if kinds != (EXCHANGE, f"{TYPE}:id-jag", f"{TYPE}:id_token"):
            return JSONResponse({"error": "invalid_request"}, 400)
        try:
            identity = jwt.decode(form["subject_token"], KEY.public_key(), ["RS256"], audience=CLIENT, issuer=self.url)
        except jwt.PyJWTError:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = time.time()
        claims = {"iss": self.url, "sub": identity["sub"], "aud": form["audience"], "iat": now, "exp": now + 60}
        more = {"resource": form["resource"], "client_id": "known", "jti": secrets.token_hex(8)}
        scope = {"scope": form["scope"]} if "scope" in form else {}
        granted = jwt.encode({**claims, **more, **scope}, KEY, "RS256", {"typ": "oauth-id-jag+jwt"})
        return JSONResponse({"access_token": granted, "issued_token_type": self.issued, "token_type": "N_A"})

    async def describe(self, request: Request) -> Response:
        told = {"issuer": self.url, "token_endpoint": self.token_endpoint or f"{self.url}/token"}
        methods = {} if self.methods is None else {"token_endpoint_auth_methods_supported": self.methods}
        return JSONResponse({**told, **methods})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.describe),
                Route("/token", self.exchange, methods=["POST"]),
            ]
        )


@contextmanager
def identities() -> Iterator[Identities]:
    one = Identities()

    def made(url: str) -> Starlette:
        one.url = url
        return one.app()

    with listening(made):
        yield one
