"""Whose request it is: by its path, and then by its headers."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.application import Recognition
from tenuto.runtime.http.auth import Authentication, Keys
from tenuto.runtime.http.dialect import Dialect, Dialects, dialect_of
from tenuto.runtime.http.guard import Guard
from tenuto.runtime.http.refusal import UnknownScope


async def endpoint(request: Request) -> Response:
    raise AssertionError("never called")


def dialect(name: str, *paths: str, marks: frozenset[str] = frozenset()) -> Dialect:
    return Dialect(name, ERRORS, tuple(Route(path, endpoint) for path in paths), marks)


HOUSE = dialect("house", "/health", "/v1/models", "/v1/models/{id:path}")
ONE = dialect("one", "/v1/chat")
MARKED = dialect("marked", "/v1/messages", "/v1/models", "/v1/models/{id:path}", marks=frozenset({"marked-version"}))
HOMELY = Dialect("homely", ERRORS, (Route("/home/tags", endpoint),), home="/home/")
DIALECTS = Dialects(HOUSE, [ONE, MARKED, HOMELY])


async def nothing(*_: object) -> Any:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("path", "header", "name"),
    [
        ("/v1/chat", "", "one"),
        ("/v1/chat/", "", "one"),
        ("/v1/chat", "marked-version", "one"),
        ("/v1/messages", "", "marked"),
        ("/v1/models", "", "house"),
        ("/v1/models", "Marked-Version", "marked"),
        ("/v1/models/a/b", "", "house"),
        ("/v1/models/a/b", "marked-version", "marked"),
        ("/home/tags", "", "homely"),
        ("/home/other", "", "homely"),
        ("/home", "", "house"),
        ("/v1/other", "", "house"),
        ("/v1/other", "marked-version", "marked"),
        ("", "", "house"),
    ],
)
def test_a_path_tells_whose_a_request_is_and_a_header_where_it_does_not(path: str, header: str, name: str) -> None:
    headers = [(header.lower().encode(), b"1")] if header else []
    assert DIALECTS.of({"type": "http", "path": path, "headers": headers}).name == name


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat", "/v1/chat"),
        ("/chat", "/v1/chat"),
        ("/models", "/v1/models"),
        ("/models/a/b", "/v1/models/a/b"),
        ("//v1///chat", "/v1/chat"),
        ("//chat", "/v1/chat"),
        ("/v1//models//x", "/v1/models/x"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/health", "/health"),
        ("//health", "/health"),
        ("/chat/", "/v1/chat"),
        ("/v1/chat/", "/v1/chat"),
        ("/nothing", "/nothing"),
        ("//evil.example", "//evil.example"),
        ("/v1/", "/v1/"),
        ("", ""),
        ("/", "/"),
    ],
)
def test_a_path_is_understood_without_its_prefix_and_with_doubled_slashes(path: str, route: str) -> None:
    assert DIALECTS.route_path(path) == route


async def test_a_request_is_of_the_dialect_of_the_route_that_its_path_means() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    for path in ("/messages", "//v1//messages"):
        scope: Scope = {"type": "http", "path": path, "raw_path": path.encode(), "headers": []}
        await Recognition(app, DIALECTS)(scope, nothing, nothing)
    assert [(scope["path"], scope["raw_path"], dialect_of(scope).name) for scope in seen] == [
        ("/v1/messages", b"/v1/messages", "marked")
    ] * 2


def test_two_that_cannot_be_told_apart_are_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="/v1/chat"):
        Dialects(HOUSE, [ONE, dialect("two", "/v1/chat")])
    with pytest.raises(ValueError, match="one"):
        Dialects(HOUSE, [ONE, dialect("one", "/v1/other")])


async def passed(scope: Scope, receive: Receive, send: Send) -> None:
    scope["passed"] = True


CHECKS = [
    Recognition(passed, DIALECTS),
    Guard(passed, max_body_bytes=1),
    Authentication(passed, Keys({}, open_to_all=True)),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: type(check).__name__)
async def test_a_connection_of_an_unknown_kind_passes_no_check(check: Any) -> None:
    scope: Scope = {"type": "webtransport", "path": "/", "headers": []}
    with pytest.raises(UnknownScope, match="webtransport"):
        await check(scope, None, None)
    assert "passed" not in scope


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: type(check).__name__)
async def test_the_start_and_the_end_of_a_server_pass_every_check(check: Any) -> None:
    scope: Scope = {"type": "lifespan"}
    await check(scope, None, None)
    assert scope["passed"]
