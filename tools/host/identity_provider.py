"""An organisation's identity provider, asked to assert to a server's authorization server whose calls these are.

Of the identity token it makes an identity assertion grant (ID-JAG), by an exchange of tokens (RFC 8693). Which
provider, and where the identity token comes from, is configuration; no server has a say in it.
"""

import base64
import json
import time
from urllib.parse import quote

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    create_oauth_metadata_request,
)
from pydantic import AnyHttpUrl, BaseModel, ConfigDict, ValidationError

from tenuto.tools.host.command_output import CommandFailed, is_token, output_of
from tenuto.tools.host.oauth_fetch import Leader, LoginFailed, fetch, object_of, refusal_of
from tenuto.tools.mcp_credentials import IdentityProvider

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_BASIC, _POST = "client_secret_basic", "client_secret_post"


class _Metadata(BaseModel):
    """What of a provider's metadata is used: those of OpenID Connect, or of RFC 8414."""

    model_config = ConfigDict(url_preserve_empty_path=True)

    issuer: str
    token_endpoint: AnyHttpUrl
    token_endpoint_auth_methods_supported: list[str] = [_BASIC]


async def assertion_of(idp: IdentityProvider, scope: str | None, audience: str, resource: str) -> str:
    """A new grant for the MCP server `resource`, good at the authorization server `audience`. Raises LoginFailed."""
    token = await _identity_token(idp)
    leader = Leader(idp.issuer or idp.token_endpoint or "")
    endpoint, method = await _endpoint(idp, leader)
    asked = {
        "grant_type": _EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": audience,
        "resource": resource,
        "subject_token": token,
        "subject_token_type": _ID_TOKEN,
        **({"scope": scope} if scope else {}),
    }
    request = _request(idp, endpoint, method, asked)
    response = await fetch(request, leader)
    if response.status_code != httpx2.codes.OK:
        over = "; the identity token has expired" if _is_over(token) else ""
        raise LoginFailed(f"the identity provider does not exchange the identity token: {refusal_of(response)}{over}")
    told = object_of(response)
    assertion = told.get("access_token")  # RFC 8693 has no other name for what is issued
    if told.get("issued_token_type") != _ID_JAG or not isinstance(assertion, str) or not is_token(assertion):
        raise LoginFailed("the identity provider answers the exchange with something else than an ID-JAG")
    return assertion


async def _identity_token(idp: IdentityProvider) -> str:
    if idp.id_token is not None:
        token, source = idp.id_token.strip(), "oauth.idp.id_token"
    else:
        try:
            token = await output_of(idp.id_token_command, "the identity token")
        except CommandFailed as exc:
            raise LoginFailed(str(exc)) from None
        source = f"what the command {idp.id_token_command[0]} prints"
    if not is_token(token):
        raise LoginFailed(f"{source} is no identity token")
    return token


async def _endpoint(idp: IdentityProvider, leader: Leader) -> tuple[str, str]:
    """Where tokens are exchanged, and how our client proves itself there. Raises LoginFailed."""
    if idp.issuer is None:
        assert idp.token_endpoint is not None
        return idp.token_endpoint, _BASIC
    for url in build_oauth_authorization_server_metadata_discovery_urls(idp.issuer, idp.issuer):
        response = await fetch(create_oauth_metadata_request(url), leader)
        if response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise LoginFailed(f"{url} answers HTTP {response.status_code}", is_final=False)
        if response.status_code != httpx2.codes.OK:
            continue
        try:
            found = _Metadata.model_validate_json(response.content)
        except ValidationError:
            continue
        if found.issuer != idp.issuer:
            raise LoginFailed(
                f"the metadata at {url} is of another issuer than oauth.idp.issuer: {found.issuer[:200]!r}"
            )
        methods = found.token_endpoint_auth_methods_supported
        return str(found.token_endpoint), _POST if _POST in methods and _BASIC not in methods else _BASIC
    raise LoginFailed(f"the identity provider {idp.issuer} has no metadata that name a token endpoint")


def _request(idp: IdentityProvider, endpoint: str, method: str, asked: dict[str, str]) -> httpx2.Request:
    headers = {}
    if idp.client_secret is None:
        asked = {**asked, "client_id": idp.client_id}
    elif method == _POST:
        asked = {**asked, "client_id": idp.client_id, "client_secret": idp.client_secret}
    else:
        pair = ":".join(quote(each, safe="") for each in (idp.client_id, idp.client_secret))
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return httpx2.Request("POST", endpoint, data=asked, headers=headers)


def _is_over(token: str) -> bool:
    """Whether it says itself that it has expired. Only the provider can tell whether that holds."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"]) < time.time()
    except (ValueError, TypeError, LookupError, RecursionError):
        return False
