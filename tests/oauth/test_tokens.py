"""Access tokens: whose are taken, and what no token can do. RFC 8725, RFC 9068 and the MCP specification."""

import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tenuto.access_errors import IssuerUnavailable
from tenuto.errors import (
    Unauthenticated,
)
from tenuto.runtime.oauth.issuer import Times, metadata_urls
from tenuto.runtime.oauth.key_set import KeySet
from tenuto.runtime.oauth.scopes import Scope
from tenuto.runtime.oauth.tokens import Tokens
from tests.oauth.authority import KEY, Authority, jwk_of, listening
from tests.oauth.authority import authority as running

HERE = "https://llm.example.org"
NAMES = (HERE, f"{HERE}/mcp")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def tokens(*issuers: str, times: Times | None = None, clock: Any = time.monotonic) -> AsyncIterator[Tokens]:
    async with Tokens(issuers, NAMES, times, clock) as made:
        yield made


async def test_a_token_says_whose_it_is_and_what_for(authority: Authority) -> None:
    async with tokens(authority.url) as checked:
        mine = await checked.grant(authority.token(HERE, scope="tenuto:run tenuto:person openid"))
        hers = await checked.grant(authority.token(f"{HERE}/mcp", sub="eve", scope="tenuto:read"))
        listed = await checked.grant(authority.token(HERE, scope=None, scp=["tenuto:run", "tenuto:admin"], typ=None))
    assert mine.scopes == {Scope.RUN, Scope.PERSON}
    assert (mine.principal.is_person, mine.principal.is_admin) == (True, False)
    assert mine.principal.id != hers.principal.id
    assert "ada" not in mine.principal.id
    assert (hers.allows(Scope.READ), hers.allows(Scope.RUN)) == (True, False)
    assert (listed.principal.id, listed.principal.is_admin) == (mine.principal.id, True)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "https://elsewhere.example.org"}, "not for this server"),
        ({"aud": f"{HERE}/mcpx"}, "not for this server"),
        ({"aud": None}, "claims"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "claims"),
        ({"exp": "soon"}, "claims"),
        ({"nbf": time.time() + 3600}, "not valid yet"),
        ({"iat": time.time() + 3600}, "not valid yet"),
        ({"iss": "https://elsewhere.example.org"}, "issuer is not one"),
        ({"sub": None}, "claims"),
        ({"sub": ""}, "no subject"),
        ({"sub": "x" * 2000}, "no subject"),
    ],
)
async def test_a_token_that_is_not_for_here_and_now_is_refused(
    authority: Authority, claims: dict[str, Any], why: str
) -> None:
    async with tokens(authority.url) as checked:
        with pytest.raises(Unauthenticated, match=why):
            await checked.grant(authority.token(HERE, **{"aud": HERE, **claims}))


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(authority: Authority, header: dict[str, Any], signature: str = "") -> str:
    claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
    return f"{part(header)}.{part(claims)}.{signature}"


def none(authority: Authority) -> str:
    return unsigned(authority, {"alg": "none", "kid": "first"}, "AA")


def shared_secret(authority: Authority) -> str:
    """The public key, which everybody has, as the secret of an HMAC: made by hand, as libraries refuse to."""
    import hashlib
    import hmac

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, form)
    body = unsigned(authority, {"alg": "HS256", "kid": "first"}).rstrip(".")
    signature = hmac.new(pem, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def other_algorithm(authority: Authority) -> str:
    claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
    return jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "first"})


def others_key(authority: Authority) -> str:
    return authority.token(HERE, key=rsa.generate_private_key(public_exponent=65537, key_size=2048))


def own_key_in_header(authority: Authority) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
    more = {"kid": "first", "jwk": jwk_of(key, "first"), "jku": f"{authority.url}/elsewhere"}
    return jwt.encode(claims, key, "RS256", more)


def critical(authority: Authority) -> str:
    claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
    return jwt.encode(claims, KEY, "RS256", {"kid": "first", "crit": ["b64"], "b64": True})


def id_token_type(authority: Authority) -> str:
    claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
    return jwt.encode(claims, KEY, "RS256", {"kid": "first", "typ": "logout+jwt"})


def long(authority: Authority) -> str:
    return authority.token(HERE, more="x" * 20_000)


def deep(authority: Authority) -> str:
    return f"{part({'alg': 'RS256'})}.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.AA"


def cut(authority: Authority) -> str:
    return authority.token(HERE)[:-4] + "AAAA"


@pytest.mark.parametrize(
    "forged",
    [none, shared_secret, other_algorithm, others_key, own_key_in_header, critical, id_token_type, long, deep, cut],
)
async def test_a_forged_token_is_refused(authority: Authority, forged: Callable[[Authority], str]) -> None:
    async with tokens(authority.url) as checked:
        await checked.grant(authority.token(HERE))
        with pytest.raises(Unauthenticated):
            await checked.grant(forged(authority))


async def test_two_issuers_with_the_same_subject_know_two_principals_and_cannot_sign_for_each_other() -> None:
    with running() as one, running() as other:
        other.signing, other.jwks = (
            key := rsa.generate_private_key(public_exponent=65537, key_size=2048),
            [jwk_of(rsa.generate_private_key(public_exponent=65537, key_size=2048), "x")],
        )
        other.jwks = [jwk_of(key, "first")]
        async with tokens(one.url, other.url) as checked:
            first, second = await checked.grant(one.token(HERE)), await checked.grant(other.token(HERE))
            with pytest.raises(Unauthenticated, match="signature"):
                await checked.grant(other.token(HERE, iss=one.url))
    assert first.principal.id != second.principal.id


async def test_a_flood_of_unknown_keys_asks_the_issuer_once_in_a_while(authority: Authority) -> None:
    clock = Clock()
    async with tokens(authority.url, clock=clock) as checked:
        await checked.grant(authority.token(HERE))
        clock.now += 60
        for number in range(50):
            authority.kid = f"made-up-{number}"
            with pytest.raises(Unauthenticated, match="no such key"):
                await checked.grant(authority.token(HERE))
        assert authority.asked.count("/jwks") == 2
        authority.kid = "second"
        authority.jwks = [jwk_of(KEY, "first"), jwk_of(KEY, "second")]
        clock.now += 60
        await checked.grant(authority.token(HERE))
        assert authority.asked.count("/jwks") == 3


async def test_a_token_without_a_key_id_is_tried_with_the_keys_that_suit(authority: Authority) -> None:
    async with tokens(authority.url) as checked:
        claims = jwt.decode(authority.token(HERE), options={"verify_signature": False})
        await checked.grant(jwt.encode(claims, KEY, "RS256"))
        await checked.grant(jwt.encode(claims, KEY, "PS384"))


async def endless(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b'{"keys": [' + b" " * 65536
            await anyio.sleep(0.01)

    return StreamingResponse(pieces())


async def silent(request: Request) -> Response:
    await anyio.sleep(30)
    return JSONResponse({})


async def broken(request: Request) -> Response:
    return Response("<html>")


async def gone(request: Request) -> Response:
    return Response("no", 500)


async def moved(request: Request) -> Response:
    return Response(status_code=302, headers={"location": "http://169.254.169.254/"})


@pytest.mark.parametrize("keys", [endless, silent, broken, gone, moved])
async def test_an_issuer_whose_keys_cannot_be_had_is_no_ones_wrong_token(keys: Any) -> None:
    def app(url: str) -> Starlette:
        async def metadata(request: Request) -> Response:
            return JSONResponse({"issuer": url, "jwks_uri": f"{url}/jwks"})

        return Starlette(routes=[Route("/.well-known/openid-configuration", metadata), Route("/jwks", keys)])

    with listening(app) as url:
        authority = Authority()
        authority.url = url
        async with tokens(url, times=Times(wait_s=1.0, fetch_s=0.5)) as checked:
            with pytest.raises(IssuerUnavailable, match="cannot be had now"):
                await checked.grant(authority.token(HERE))


async def test_metadata_of_another_issuer_and_keys_elsewhere_inside_are_not_used() -> None:
    asked: list[str] = []

    def app(url: str) -> Starlette:
        async def impostor(request: Request) -> Response:
            return JSONResponse({"issuer": "https://login.example.org", "jwks_uri": f"{url}/jwks"})

        async def keys(request: Request) -> Response:
            asked.append(request.url.path)
            return JSONResponse({"keys": [jwk_of(KEY, "first")]})

        return Starlette(routes=[Route("/.well-known/openid-configuration", impostor), Route("/jwks", keys)])

    with listening(app) as url:
        authority = Authority()
        authority.url = url
        async with tokens(url, times=Times(wait_s=2.0)) as checked:
            with pytest.raises(IssuerUnavailable, match="another issuer"):
                await checked.grant(authority.token(HERE))
    assert asked == []


async def test_while_an_issuer_is_down_its_keys_are_good_for_an_hour(authority: Authority) -> None:
    clock = Clock()
    async with tokens(authority.url, clock=clock) as checked:
        token = authority.token(HERE)
        await checked.grant(token)
        authority.jwks = []
        for _ in range(5):
            clock.now += 600
            await checked.grant(token)
        clock.now += 1200
        with pytest.raises(IssuerUnavailable):
            await checked.grant(token)


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "RS256"},
        {**jwk_of(KEY, "a"), "use": "enc"},
        {**jwk_of(KEY, "a"), "key_ops": ["encrypt"]},
        {**jwk_of(KEY, "a"), "alg": "HS256"},
        {**jwk_of(KEY, "a"), "alg": "none"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a"},
        {"kty": "RSA", "kid": "a"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        "text",
        None,
    ],
)
def test_what_is_no_strong_public_key_for_signatures_is_left_out(entry: Any) -> None:
    assert len(KeySet({"keys": [entry]})) == 0
    assert len(KeySet({"keys": [entry, jwk_of(KEY, "good")]})) == 1
    assert len(KeySet({"keys": entry})) == 0


def test_weak_keys_are_left_out_and_a_set_has_an_end() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    assert len(KeySet({"keys": [jwk_of(weak, "a")]})) == 0
    assert len(KeySet({"keys": [jwk_of(KEY, str(number)) for number in range(70)]})) == 64


def test_metadata_is_looked_for_where_both_standards_put_it() -> None:
    assert metadata_urls("https://h/realm") == [
        "https://h/.well-known/oauth-authorization-server/realm",
        "https://h/.well-known/openid-configuration/realm",
        "https://h/realm/.well-known/openid-configuration",
    ]
    assert len(metadata_urls("https://h")) == 2
