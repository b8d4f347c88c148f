"""Who asks."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tenuto.errors import Unauthenticated
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.application import HttpSettings, Recognition, application
from tenuto.runtime.http.auth import Authentication, Keys, holder, principal_of
from tenuto.runtime.http.dialect import Dialect, Dialects
from tenuto.runtime.http.protected_resource import ProtectedResource
from tenuto.runtime.oauth.scopes import Grant
from tenuto.runtime.oauth.scopes import Scope as TokenScope
from tenuto.sessions.principal import LOCAL, Principal, Role

DIALECTS = Dialects(Dialect("house", ERRORS, ()))


def keys_of(*names: str) -> dict[str, Principal]:
    return {name: holder(name) for name in names}


def test_every_key_is_a_principal_that_does_not_tell_the_key() -> None:
    keys = Keys(keys_of("key-of-ada", "key-of-bob"), "the-secret")
    ada, bob = keys.principal("Bearer key-of-ada"), keys.principal("bearer  key-of-bob ")
    assert len({ada, bob, LOCAL}) == 3
    assert "ada" not in ada.id
    assert Keys(keys_of("key-of-ada")).principal("Bearer key-of-ada") == ada
    assert keys.principal("Bearer the-secret") == LOCAL


def test_a_user_who_replaces_a_key_keeps_their_sessions() -> None:
    assert holder("old", "ada").id == holder("new", "ada").id
    assert len({holder("old", "ada").id, holder("old", "bob").id, holder("old").id}) == 3


def test_what_a_key_may_do_is_told_by_the_key_that_is_used() -> None:
    keys = Keys({"hers": holder("hers", "ada", [Role.PERSON]), "her-agents": holder("her-agents", "ada")}, "the-secret")
    hers, agents = keys.principal("Bearer hers"), keys.principal("Bearer her-agents")
    assert hers.id == agents.id
    assert (hers.is_person, hers.is_admin) == (True, False)
    assert (agents.is_person, agents.is_admin) == (False, False)
    assert (LOCAL.is_person, LOCAL.is_admin) == (True, True)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic key-of-ada", "key-of-ada", "Bearer key-of-ad", "Bearer the-secret"]
)
def test_nobody_else_gets_in(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        Keys(keys_of("key-of-ada")).principal(header)


def test_without_keys_and_not_open_nobody_gets_in() -> None:
    with pytest.raises(Unauthenticated):
        Keys({}).principal("Bearer x")


@given(st.none() | st.text())
def test_an_open_server_takes_everybody_as_its_own_user(header: str | None) -> None:
    assert Keys({}, open_to_all=True).principal(header) == LOCAL


async def test_the_middleware_lets_only_public_paths_through_without_a_key() -> None:
    async def who(request: Request) -> Response:
        return PlainTextResponse(principal_of(request).id)

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok")

    routed = Starlette(routes=[Route("/who", who), Route("/alive", alive)])
    app = Recognition(Authentication(routed, Keys(keys_of("k"), "s"), ["/alive"]), DIALECTS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        refused = await client.get("/who")
        known = await client.get("/who", headers={"authorization": "Bearer s"})
        public = await client.get("/alive")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert (known.text, public.text) == (LOCAL.id, "ok")


@pytest.mark.parametrize(
    "path", ["oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server"]
)
async def test_who_looks_for_how_to_get_a_key_is_told_that_there_is_nothing_and_not_to_have_one(path: str) -> None:
    app = application(DIALECTS, Keys(keys_of("k"), "s"), HttpSettings())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get(f"/.well-known/{path}")).status_code == 404
        assert (await client.get(f"/.well-unknown/{path}")).status_code == 401


async def test_a_websocket_ends_at_the_first_message_after_its_token_has_expired() -> None:
    class Expiring:
        """Takes any token, for a moment that is over."""

        async def grant(self, token: str) -> Grant:
            return Grant(Principal("oauth-a"), frozenset([TokenScope.RUN]), expires_at=1.0)

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message["type"] != "websocket.disconnect":
            told.append(message)
            message = await receive()

    told: list[Message] = []
    sent: list[Message] = []
    resource = ProtectedResource("https://llm.example.org", ("https://login.example.org",), Expiring())
    app = Recognition(Authentication(echo, Keys({}), resource=resource), DIALECTS)
    coming = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "run this"}])

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer a.b.c")]
    await app({"type": "websocket", "path": "/v1/responses", "headers": headers, "query_string": b""}, receive, send)
    assert [message["type"] for message in told] == ["websocket.connect"]
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]
