"""Logins that an organisation's identity provider vouches for, without a person."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import jwt
import pytest
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull

from tenuto.errors import ConfigurationError, ServerUnreachable
from tenuto.tools.host import Failure, Host, ServerState
from tenuto.tools.host.login import login
from tenuto.tools.host.oauth_fetch import LoginFailed
from tenuto.tools.host.token_file import Kept, TokenFile
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, kept_in, parse_mcp_config
from tests.oauth import identity
from tests.oauth.authority import Authority
from tests.oauth.authority import authority as running_authority
from tests.oauth.guarded import Guarded
from tests.oauth.guarded import guarded as running
from tests.oauth.identity import Identities, identities
from tests.oauth.test_logins import CONTEXT, config, log_in, ready
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow
SECRET = "canary of/the:server"


@pytest.fixture
def idp() -> Iterator[Identities]:
    with identities() as one:
        yield one


@pytest.fixture
def server(authority: Authority, idp: Identities) -> Iterator[Guarded]:
    authority.trusted[idp.url] = identity.KEY.public_key()
    authority.clients["known"] = OAuthClientInformationFull(
        client_id="known",
        client_secret=SECRET,
        redirect_uris=None,
        grant_types=[JWT_BEARER_GRANT_TYPE],
        token_endpoint_auth_method="client_secret_basic",
    )
    with running(authority) as one:
        yield one


def managed(authority: Authority, idp: Identities, **of_idp: Any) -> dict[str, Any]:
    """The `oauth` of an entry; what is None is left out."""
    at = {"issuer": idp.url, "client_id": identity.CLIENT, "id_token": idp.id_token(), **of_idp}
    return {
        "grant": "enterprise_managed",
        "client_id": "known",
        "client_secret": SECRET,
        "issuer": authority.url,
        "idp": {name: value for name, value in at.items() if value is not None},
    }


async def refused(made: ServerConfig) -> ServerState:
    """How a server stands whose login fails."""
    async with Host([made]) as host:
        await host.settled(HANGS_S)
        return host.states[0]


async def kept(data_dir: Path, server: Guarded) -> Kept:
    return await TokenFile(data_dir / "mcp-tokens", "far", f"{server.url}/mcp").read()


async def test_an_identity_token_is_exchanged_for_a_grant_and_that_for_a_token(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    oauth = managed(authority, idp)
    async with Host([config(server, tmp_path, oauth={**oauth, "scope": "tenuto:run tenuto:read"})]) as host:
        await ready(host)
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"
    assert idp.asked == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "audience": authority.url,
            "resource": f"{server.url}/mcp",
            "subject_token": oauth["idp"]["id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "scope": "tenuto:run tenuto:read",
            "client_id": identity.CLIENT,
            "by": "none",
        }
    ]
    tokens = (await kept(tmp_path, server)).tokens
    assert tokens is not None
    assert jwt.decode(tokens.access_token, options={"verify_signature": False})["sub"] == "ada"
    assert set(server.seen) == {"", f"Bearer {tokens.access_token}"}


@pytest.mark.parametrize(
    ("methods", "way"), [(None, "basic"), (["client_secret_post"], "post"), (["private_key_jwt"], "basic")]
)
async def test_our_client_proves_itself_as_the_provider_wants(
    methods: list[str] | None, way: str, server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    idp.secret, idp.methods = identity.SECRET, methods
    oauth = managed(authority, idp, client_secret=identity.SECRET)
    async with Host([config(server, tmp_path, oauth=oauth)]) as host:
        await ready(host)
    assert [each["by"] for each in idp.asked] == [way]


async def test_a_known_token_endpoint_needs_no_metadata(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    idp.secret = identity.SECRET
    at = {"issuer": None, "token_endpoint": f"{idp.url}/token", "client_secret": identity.SECRET}
    async with Host([config(server, tmp_path, oauth=managed(authority, idp, **at))]) as host:
        await ready(host)
    assert [each["by"] for each in idp.asked] == ["basic"]


async def test_a_token_that_ends_is_had_anew_by_a_new_identity_token_and_the_call_made_once(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    source = tmp_path / "identity"
    source.write_text(idp.id_token("ada"))
    command = [sys.executable, "-c", f"print(open({str(source)!r}).read())"]
    oauth = managed(authority, idp, id_token=None, id_token_command=command)
    async with Host([config(server, tmp_path, oauth=oauth)]) as host:
        await ready(host)
        first = (await kept(tmp_path, server)).tokens
        assert first is not None
        server.stale.add(first.access_token)
        source.write_text(idp.id_token("ada again"))
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"
    second = (await kept(tmp_path, server)).tokens
    assert second is not None
    assert jwt.decode(second.access_token, options={"verify_signature": False})["sub"] == "ada again"
    assert server.calls == 1


async def test_a_token_is_had_anew_before_it_ends(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    oauth = managed(authority, idp)
    file = await log_in(server, tmp_path, oauth=oauth)  # nobody is shown anything
    old = await file.read()
    assert old.tokens is not None
    old.expires_at = 1.0
    await file.write(old)
    async with Host([config(server, tmp_path, oauth=oauth)]) as host:
        await ready(host)
    assert f"Bearer {old.tokens.access_token}" not in server.seen
    assert len(idp.asked) == 2


async def test_many_that_need_a_token_at_once_have_it_asked_for_once(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    made = config(server, tmp_path, oauth=managed(authority, idp))
    async with Host([made]) as one, Host([made]) as other, anyio.create_task_group() as group:
        group.start_soon(ready, one)
        group.start_soon(ready, other)
    assert len(idp.asked) == len(authority.presented) == 1


async def test_an_identity_token_that_has_expired_is_told_as_such(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    state = await refused(config(server, tmp_path, oauth=managed(authority, idp, id_token=idp.id_token(lasts_s=-60))))
    assert state.failure is Failure.LOGIN_REQUIRED
    why = f"{idp.url}/token refuses with HTTP 400 (invalid_grant); the identity token has expired"
    assert state.reason.endswith(why)
    assert authority.presented == []


@pytest.mark.parametrize("code", ["invalid_target", "access_denied", "interaction_required"])
async def test_a_provider_that_refuses_is_told_with_its_code(
    code: str, server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    idp.refusal = {"error": code}
    state = await refused(config(server, tmp_path, oauth=managed(authority, idp)))
    assert state.failure is Failure.LOGIN_REQUIRED
    assert "a login by its `oauth` settings failed: the identity provider does not exchange" in state.reason
    assert state.reason.endswith(f"{idp.url}/token refuses with HTTP 400 ({code})")


@pytest.mark.parametrize(
    ("is_trusted", "secret", "status", "code"),
    [(False, SECRET, 400, "invalid_grant"), (True, "another", 401, "invalid_client")],
)
async def test_an_authorization_server_that_refuses_is_told_with_its_code(
    is_trusted: bool,
    secret: str,
    status: int,
    code: str,
    server: Guarded,
    authority: Authority,
    idp: Identities,
    tmp_path: Path,
) -> None:
    if not is_trusted:
        authority.trusted.clear()
    state = await refused(config(server, tmp_path, oauth={**managed(authority, idp), "client_secret": secret}))
    assert state.failure is Failure.LOGIN_REQUIRED
    assert state.reason.endswith(f"failed: {authority.url}/token refuses with HTTP {status} ({code})")


async def test_what_is_no_grant_is_presented_to_nobody(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    idp.issued = "urn:ietf:params:oauth:token-type:access_token"
    state = await refused(config(server, tmp_path, oauth=managed(authority, idp)))
    assert "something else than an ID-JAG" in state.reason
    assert authority.presented == []


async def test_metadata_of_another_issuer_lead_nowhere(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    other = managed(authority, idp, issuer=idp.url.replace("127.0.0.1", "localhost"))
    state = await refused(config(server, tmp_path, oauth=other))
    assert "is of another issuer than oauth.idp.issuer" in state.reason
    other = {**managed(authority, idp), "issuer": authority.url.replace("127.0.0.1", "localhost")}
    state = await refused(config(server, tmp_path, oauth=other))
    assert "issuer mismatch" in state.reason
    assert (idp.asked, authority.presented) == ([], [])


@pytest.mark.parametrize("endpoint", ["ftp://127.0.0.1/token", "token", "http://[", 7])
async def test_metadata_without_an_address_lead_nowhere(
    endpoint: Any, server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    idp.token_endpoint = endpoint
    state = await refused(config(server, tmp_path, oauth=managed(authority, idp)))
    assert state.failure is Failure.LOGIN_REQUIRED
    assert state.reason.endswith("has no metadata that name a token endpoint")


async def test_more_scopes_are_asked_for_by_the_command_that_logs_in(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    oauth = {**managed(authority, idp), "scope": "tenuto:run"}
    server.needed_for["secret"] = "tenuto:admin"
    async with Host([config(server, tmp_path, oauth=oauth)]) as host:
        await ready(host)
        with pytest.raises(ServerUnreachable, match=r"wants more than was granted.*`tenuto mcp login far`"):
            await host.servers[0].call("secret", {}, CONTEXT)
        await log_in(server, tmp_path, oauth=oauth)
        assert (await host.servers[0].call("secret", {}, CONTEXT)).text == "42"
    assert [each["scope"] for each in idp.asked] == ["tenuto:run", "tenuto:run tenuto:admin"]


async def test_the_server_has_no_say_in_where_a_grant_goes(
    authority: Authority, idp: Identities, server: Guarded, tmp_path: Path
) -> None:
    with running_authority() as evil, running(evil) as luring:
        luring.accepted.add("nothing that is sent")
        await refused(config(luring, tmp_path, oauth=managed(authority, idp)))
        assert (evil.asked, evil.shown, evil.presented) == ([], set(), [])
    assert {each["audience"] for each in idp.asked} == {authority.url}


async def test_a_provider_that_is_away_is_tried_again_and_no_login_is_asked_for(
    server: Guarded, authority: Authority, tmp_path: Path
) -> None:
    with identities() as away:
        oauth = managed(authority, away)
    state = await refused(config(server, tmp_path, oauth=oauth))
    assert state.failure is Failure.UNREACHABLE
    assert f"{away.url}/" in state.reason


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; print('the-canary'); sys.exit(3)", "ended with exit code 3"),
        ("print('the canary')", "is no identity token"),
        ("print()", "is no identity token"),
    ],
)
async def test_a_command_that_gives_no_identity_says_so_and_not_what_it_wrote(
    code: str, why: str, server: Guarded, authority: Authority, idp: Identities, tmp_path: Path
) -> None:
    oauth = managed(authority, idp, id_token=None, id_token_command=[sys.executable, "-c", code])
    state = await refused(config(server, tmp_path, oauth=oauth))
    assert state.failure is Failure.LOGIN_REQUIRED
    assert why in state.reason
    assert "canary" not in str(state)
    assert idp.asked == []


async def test_no_secret_is_told_even_where_the_provider_repeats_it(
    server: Guarded, authority: Authority, idp: Identities, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    oauth = managed(authority, idp, client_secret=identity.SECRET)
    idp.refusal = {"error": oauth["idp"]["id_token"]}
    made = config(server, tmp_path, oauth=oauth)
    state = await refused(made)
    assert state.reason.endswith("refuses with HTTP 400")
    assert isinstance(made.target, HttpTarget)
    assert made.target.oauth is not None
    with pytest.raises(LoginFailed) as failed:
        await login(made.target.url, made.target.oauth, print)
    told = f"{state} {made} {failed.value} {caplog.text}"
    for secret in (SECRET, identity.SECRET, oauth["idp"]["id_token"]):
        assert secret not in told


IDP = {"issuer": "https://idp", "client_id": "c", "id_token": "t"}
ENTRY = {"grant": "enterprise_managed", "client_id": "c", "client_secret": "s", "issuer": "https://as", "idp": IDP}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"client_id": None}, "enterprise_managed needs client_id"),
        ({"client_secret": None}, "enterprise_managed needs client_id"),
        ({"issuer": None}, "enterprise_managed needs client_id"),
        ({"idp": None}, "enterprise_managed needs client_id"),
        ({"private_key": "k"}, "private_key is for client_credentials"),
        ({"grant": "authorization_code"}, "idp is for enterprise_managed"),
        ({"issuer": "http://as.example.org"}, r"oauth\.issuer: must begin with https"),
        ({"idp": {**IDP, "issuer": "http://idp.example.org"}}, r"oauth\.idp\.issuer: must begin with https"),
        ({"idp": {**IDP, "issuer": "https://["}}, r"oauth\.idp\.issuer: must begin with https"),
        ({"idp": {**IDP, "token_endpoint": "https://idp/token"}}, "give either issuer or token_endpoint"),
        ({"idp": {"client_id": "c", "id_token": "t"}}, "give either issuer or token_endpoint"),
        ({"idp": {**IDP, "id_token_command": "c"}}, "give either id_token or id_token_command"),
        ({"idp": {"client_id": "c", "issuer": "https://idp"}}, "give either id_token or id_token_command"),
        ({"idp": {"issuer": "https://idp", "id_token": "t"}}, r"idp\.client_id: Field required"),
        ({"idp": {**IDP, "id_token": "${MISSING}"}}, r"oauth\.idp\.id_token: the environment variable MISSING"),
        (
            {"idp": {"issuer": "https://idp", "client_id": "c", "id_token_command": []}},
            r"oauth\.idp\.id_token_command: the command is empty",
        ),
        ({"idp": {**IDP, "token": "t"}}, r"idp\.token: Extra inputs"),
    ],
)
def test_wrong_settings_are_refused_by_name(change: dict[str, Any], why: str) -> None:
    oauth = {name: value for name, value in {**ENTRY, **change}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=why):
        parse_mcp_config(json.dumps({"mcpServers": {"far": {"url": "https://h/mcp", "oauth": oauth}}}), "mcp.json", {})


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    idp = {**IDP, "id_token": "${IDENTITY}", "client_secret": "${IDP_SECRET}"}
    oauth = {**ENTRY, "client_secret": "${SECRET}", "idp": idp}
    text = json.dumps({"mcpServers": {"far": {"url": "https://h/mcp", "oauth": oauth}}})
    environ = {"SECRET": "canary-1", "IDP_SECRET": "canary-2", "IDENTITY": "canary-3"}
    (made,) = kept_in(parse_mcp_config(text, "mcp.json", environ), tmp_path)
    assert isinstance(made.target, HttpTarget)
    assert made.target.oauth is not None
    assert made.target.oauth.secrets == ("canary-1", "canary-2", "canary-3")
    assert "canary" not in repr(made)
