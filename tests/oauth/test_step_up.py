"""Calls that need a login, or more of one, beside others that do not; and authorization servers that are replaced."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tenuto.errors import ServerUnreachable
from tenuto.tools.host import Failure, Host, Status
from tenuto.tools.host.oauth_fetch import LoginFailed
from tests.oauth.authority import Authority
from tests.oauth.authority import authority as another_authority
from tests.oauth.guarded import Guarded
from tests.oauth.guarded import guarded as running
from tests.oauth.test_logins import CONTEXT, config, log_in, ready
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow


@pytest.fixture
def server(authority: Authority) -> Iterator[Guarded]:
    with running(authority) as one:
        yield one


async def content(host: Host) -> None:
    """Wait until it wants no login any more."""
    with anyio.fail_after(HANGS_S):
        while host.states[0].failure is not None:  # noqa: ASYNC110  (a supervisor moves it)
            await anyio.sleep(0.02)


async def test_a_call_that_needs_more_scopes_says_so_and_costs_the_others_nothing(
    server: Guarded, tmp_path: Path
) -> None:
    await log_in(server, tmp_path, oauth={"scope": "tenuto:run"})
    server.needed_for["secret"] = "tenuto:admin"
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        far = host.servers[0]
        with pytest.raises(ServerUnreachable, match="did not take the call of secret: login is required"):
            await far.call("secret", {}, CONTEXT)
        assert (far.state.status, far.state.failure) == (Status.READY, Failure.LOGIN_REQUIRED)
        assert "more than was granted: tenuto:run tenuto:admin): run `tenuto mcp login far`" in far.state.reason
        assert (await far.call("other", {}, CONTEXT)).text == "42"
        assert (far.state.restarts, server.calls) == (0, 1)
        tokens = (await (await log_in(server, tmp_path)).read()).tokens
        assert tokens is not None
        assert tokens.scope == "tenuto:run tenuto:admin"
        assert (await far.call("secret", {}, CONTEXT)).text == "42"
        await content(host)
        assert (far.state.status, far.state.reason, far.state.restarts) == (Status.READY, "", 0)


async def test_scopes_of_one_refusal_after_the_other_are_asked_for_together(server: Guarded, tmp_path: Path) -> None:
    await log_in(server, tmp_path, oauth={"scope": "tenuto:run"})
    server.needed_for = {"secret": "tenuto:admin", "other": "tenuto:person"}
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        for name in ("secret", "other", "secret"):
            with pytest.raises(ServerUnreachable, match="login is required"):
                await host.servers[0].call(name, {}, CONTEXT)
        assert "tenuto:run tenuto:admin tenuto:person" in host.states[0].reason
    tokens = (await (await log_in(server, tmp_path)).read()).tokens
    assert tokens is not None
    assert set((tokens.scope or "").split()) == {"tenuto:run", "tenuto:admin", "tenuto:person"}


async def test_what_a_server_wants_is_bounded_and_holds_nothing_but_scopes(server: Guarded, tmp_path: Path) -> None:
    file = await log_in(server, tmp_path, oauth={"scope": "tenuto:run"})
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        for wanted in ("tenuto:admin \\ sch\xf6n", *(f"{number}{'x' * 1000}" for number in range(9))):
            server.needed_for["secret"] = wanted
            with pytest.raises(ServerUnreachable, match="login is required"):
                await host.servers[0].call("secret", {}, CONTEXT)
        assert len(host.states[0].reason) < 500
    noted = (await file.read()).wanted
    assert noted is not None
    assert noted.split()[:2] == ["tenuto:run", "tenuto:admin"]
    assert noted.isascii()
    assert "\\" not in noted
    assert len(noted) <= 4096


async def test_a_server_that_lists_to_everybody_is_ready_and_says_which_login_its_calls_need(
    server: Guarded, tmp_path: Path
) -> None:
    server.open = {"initialize", "notifications/initialized", "tools/list"}
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        far = host.servers[0]
        with pytest.raises(ServerUnreachable, match="run `tenuto mcp login far`"):
            await far.call("secret", {}, CONTEXT)
        assert (far.state.status, far.state.failure) == (Status.READY, Failure.LOGIN_REQUIRED)
        assert (server.calls, far.state.restarts) == (0, 0)
        await log_in(server, tmp_path)
        assert (await far.call("secret", {}, CONTEXT)).text == "42"
        await content(host)


async def test_a_server_that_knows_no_handshake_says_that_it_wants_a_login(server: Guarded, tmp_path: Path) -> None:
    server.knows_handshake = False
    async with Host([config(server, tmp_path)]) as host:
        await host.settled(HANGS_S)
        assert (host.states[0].status, host.states[0].failure) == (Status.WAITING, Failure.LOGIN_REQUIRED)
        assert "`tenuto mcp login far`" in host.states[0].reason
        await log_in(server, tmp_path)
        await ready(host)
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"


async def test_a_renewal_that_was_refused_is_not_asked_for_again(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    file = await log_in(server, tmp_path)
    async with Host([config(server, tmp_path)]) as host:
        await ready(host)
        tokens = (await file.read()).tokens
        assert tokens is not None
        server.stale.add(tokens.access_token)
        authority.refreshes.clear()
        for _ in range(3):
            with pytest.raises(ServerUnreachable, match="login is required"):
                await host.servers[0].call("secret", {}, CONTEXT)
        assert authority.renewals == 1
        await log_in(server, tmp_path)
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"


async def test_another_authorization_server_is_told_nothing_of_the_one_before(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    before = await (await log_in(server, tmp_path)).read()
    with another_authority() as other:
        server.authority = other
        async with Host([config(server, tmp_path)]) as host:
            await host.settled(HANGS_S)
            assert host.states[0].failure is Failure.LOGIN_REQUIRED
            after = await (await log_in(server, tmp_path)).read()
            await ready(host)
    assert before.client is not None
    assert after.client is not None
    assert after.client.client_id in other.clients
    assert before.client.client_id not in other.shown
    assert after.metadata is not None
    assert str(after.metadata.issuer).rstrip("/") == other.url
    assert after.resource is not None
    assert [str(url).rstrip("/") for url in after.resource.authorization_servers] == [other.url]


async def test_the_client_of_an_entry_is_shown_to_no_other_authorization_server(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    first = await (await log_in(server, tmp_path)).read()
    assert first.client is not None
    port = (first.client.redirect_uris or [])[0].port
    entry = {"oauth": {"client_id": first.client.client_id, "callback_port": port}}
    authority.clients[first.client.client_id].token_endpoint_auth_method = "none"
    authority.clients[first.client.client_id].client_secret = None
    file = await log_in(server, tmp_path, **entry)
    with another_authority() as other:
        server.authority = other
        why = "another authorization server than that of the client in its entry"
        with pytest.RaisesGroup(pytest.RaisesExc(LoginFailed, match=why)):
            await log_in(server, tmp_path, **entry)
        assert first.client.client_id not in other.shown
        other.clients[first.client.client_id] = authority.clients[first.client.client_id]
        await file.remove()
        await log_in(server, tmp_path, **entry)
        assert first.client.client_id in other.shown
