"""How a server over HTTP is told who calls it, besides fixed headers: OAuth, or a command that prints headers."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

FOLDER = "mcp-tokens"
"""In the data folder."""


Grant = Literal["authorization_code", "client_credentials", "enterprise_managed"]
"""By what a token is had: a person's login, what proves the client alone, or what an identity provider asserts."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """That of an organisation, and our client there. It is found by its `issuer`, or its `token_endpoint` is known; the
    identity token is `id_token`, or what a command prints, whose words may hold secrets."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    token_endpoint: str | None = None
    id_token: str | None = field(default=None, repr=False)
    id_token_command: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """How to log in at a server that wants it. `folder` is where tokens are kept, for all servers; None: nowhere, and
    no one can log in."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scope: str | None = None
    grant: Grant = "authorization_code"
    idp: IdentityProvider | None = None
    client_metadata_url: str | None = None
    callback_port: int = 0
    name: str = ""
    folder: Path | None = None

    @property
    def needs_person(self) -> bool:
        """Whether somebody must log in; else tokens are had by what is configured, as often as they are needed."""
        return self.grant == "authorization_code"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of it is to be shown to nobody, but for a private key: its words are those of any text."""
        of_idp = (self.idp.client_secret, self.idp.id_token) if self.idp else ()
        return tuple(each for each in (self.client_secret, *of_idp) if each is not None)

    def kept_in(self, data_dir: Path, name: str) -> "OAuthSettings":
        """The same, with tokens kept in a data folder under a server's name."""
        return replace(self, folder=data_dir / FOLDER, name=name)


@dataclass(frozen=True, slots=True)
class HeaderCommand:
    """A program that prints headers as a JSON object, or with `is_bearer` a token. Its words may hold secrets."""

    words: tuple[str, ...] = field(repr=False)
    is_bearer: bool = False


class IdentityProviderEntry(BaseModel):
    """`idp` in `oauth`."""

    model_config = ConfigDict(extra="forbid")

    client_id: str = Field(min_length=1)
    client_secret: str | None = Field(None, min_length=1, repr=False)
    issuer: str | None = None
    token_endpoint: str | None = None
    id_token: str | None = Field(None, min_length=1, repr=False)
    id_token_command: str | list[str] | None = Field(None, repr=False)

    @model_validator(mode="after")
    def _one_of_each(self) -> "IdentityProviderEntry":
        if (self.issuer is None) is (self.token_endpoint is None):
            raise ValueError("give either issuer or token_endpoint")
        if (self.id_token is None) is (self.id_token_command is None):
            raise ValueError("give either id_token or id_token_command")
        return self

    def settings(self, expand: Callable[[str, str], str]) -> IdentityProvider:
        """What it says, as `OAuthEntry.settings`."""
        text = _expanding(self, expand)
        try:
            command = () if self.id_token_command is None else words_of(self.id_token_command)
        except ValueError as exc:
            raise ValueError(f"idp.id_token_command: {exc}") from None
        return IdentityProvider(
            client_id=text("client_id") or self.client_id,
            client_secret=text("client_secret"),
            issuer=_private(text("issuer"), "idp.issuer"),
            token_endpoint=_private(text("token_endpoint"), "idp.token_endpoint"),
            id_token=text("id_token"),
            id_token_command=command,
        )


class OAuthEntry(BaseModel):
    """`oauth` in a server's entry."""

    model_config = ConfigDict(extra="forbid")

    client_id: str | None = Field(None, min_length=1)
    client_secret: str | None = Field(None, min_length=1, repr=False)
    private_key: str | None = Field(None, min_length=1, repr=False)
    issuer: str | None = None
    scope: str | None = None
    grant: Grant = "authorization_code"
    idp: IdentityProviderEntry | None = None
    client_metadata_url: str | None = Field(None, pattern="^https://[^/]+/.+")
    callback_port: int = Field(0, ge=0, le=65535)

    @model_validator(mode="after")
    def _a_client_of_its_own_is_known(self) -> "OAuthEntry":
        has_one_secret = (self.client_secret is None) is not (self.private_key is None)
        if self.grant == "client_credentials" and not (self.client_id and has_one_secret and self.issuer):
            raise ValueError(
                "client_credentials need client_id, issuer, and either client_secret or private_key: what proves the"
                " client goes nowhere else"
            )
        is_managed = self.grant == "enterprise_managed"
        if is_managed and not (self.client_id and self.client_secret and self.issuer and self.idp):
            raise ValueError(
                "enterprise_managed needs client_id, client_secret and issuer, which are of the server's authorization"
                " server, and idp, the identity provider"
            )
        if self.grant != "client_credentials" and self.private_key is not None:
            raise ValueError("private_key is for client_credentials")
        if not is_managed and self.idp is not None:
            raise ValueError("idp is for enterprise_managed")
        return self

    def settings(self, expand: Callable[[str, str], str]) -> OAuthSettings:
        """What it says. `expand` puts variables in, given a field's name and its value.

        Raises:
            ValueError: a field cannot be what it is with its variables; the text begins with its name.
        """
        text = _expanding(self, expand)
        issuer = text("issuer")
        return OAuthSettings(
            client_id=text("client_id"),
            client_secret=text("client_secret"),
            private_key=text("private_key"),
            issuer=_private(issuer, "issuer") if self.grant == "enterprise_managed" else issuer,
            scope=text("scope"),
            client_metadata_url=text("client_metadata_url"),
            grant=self.grant,
            idp=None if self.idp is None else self.idp.settings(lambda name, value: expand(f"idp.{name}", value)),
            callback_port=self.callback_port,
        )


def _expanding(entry: BaseModel, expand: Callable[[str, str], str]) -> Callable[[str], str | None]:
    """A field of an entry by its name, with its variables put in."""

    def text(name: str) -> str | None:
        value: str | None = getattr(entry, name)
        return value if value is None else expand(name, value)

    return text


def _private(url: str | None, name: str) -> str | None:
    """An address to which identities are told: only over TLS, or on this machine."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise ValueError(f"{name}: must begin with https://, or with http:// on this machine")
    return url


def words_of(command: str | list[str]) -> tuple[str, ...]:
    """A command's words; no shell reads it.

    Raises:
        ValueError: it has none.
    """
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    if not words:
        raise ValueError("the command is empty")
    return words
