"""Who asks."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tenuto.errors import Unauthenticated
from tenuto.runtime.api.auth import LOCAL, Authentication, Keys, principal_of


def test_every_key_is_a_principal_that_does_not_tell_the_key() -> None:
    keys = Keys(["key-of-ada", "key-of-bob"], "the-secret")
    ada, bob = keys.principal("Bearer key-of-ada"), keys.principal("bearer  key-of-bob ")
    assert len({ada, bob, LOCAL}) == 3
    assert "ada" not in ada
    assert Keys(["key-of-ada"]).principal("Bearer key-of-ada") == ada
    assert keys.principal("Bearer the-secret") == LOCAL


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic key-of-ada", "key-of-ada", "Bearer key-of-ad", "Bearer the-secret"]
)
def test_nobody_else_gets_in(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        Keys(["key-of-ada"]).principal(header)


def test_without_keys_and_not_open_nobody_gets_in() -> None:
    with pytest.raises(Unauthenticated):
        Keys([]).principal("Bearer x")


@given(st.none() | st.text())
def test_an_open_server_takes_everybody_as_its_own_user(header: str | None) -> None:
    assert Keys([], open_to_all=True).principal(header) == LOCAL


async def test_the_middleware_lets_only_public_paths_through_without_a_key() -> None:
    async def who(request: Request) -> Response:
        return PlainTextResponse(principal_of(request))

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok")

    app = Authentication(Starlette(routes=[Route("/who", who), Route("/alive", alive)]), Keys(["k"], "s"), ["/alive"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        refused = await client.get("/who")
        known = await client.get("/who", headers={"authorization": "Bearer s"})
        public = await client.get("/alive")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert (known.text, public.text) == (LOCAL, "ok")
