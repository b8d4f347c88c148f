"""How a server over HTTP is told who calls it, besides fixed headers: OAuth, or a command that prints headers."""

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FOLDER = "mcp-tokens"
"""In the data folder."""


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """How to log in at a server that wants it. `folder` is where tokens are kept, for all servers; None: nowhere, and
    no one can log in."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scope: str | None = None
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_metadata_url: str | None = None
    callback_port: int = 0
    name: str = ""
    folder: Path | None = None

    def kept_in(self, data_dir: Path, name: str) -> "OAuthSettings":
        """The same, with tokens kept in a data folder under a server's name."""
        return replace(self, folder=data_dir / FOLDER, name=name)


@dataclass(frozen=True, slots=True)
class HeaderCommand:
    """A program that prints headers as a JSON object, or with `is_bearer` a token. Its words may hold secrets."""

    words: tuple[str, ...] = field(repr=False)
    is_bearer: bool = False


class OAuthEntry(BaseModel):
    """`oauth` in a server's entry."""

    model_config = ConfigDict(extra="forbid")

    client_id: str | None = Field(None, min_length=1)
    client_secret: str | None = Field(None, min_length=1, repr=False)
    issuer: str | None = None
    scope: str | None = None
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_metadata_url: str | None = Field(None, pattern="^https://[^/]+/.+")
    callback_port: int = Field(0, ge=0, le=65535)

    @model_validator(mode="after")
    def _a_client_of_its_own_is_known(self) -> "OAuthEntry":
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret and self.issuer):
            raise ValueError(
                "client_credentials need client_id, client_secret and issuer: the secret goes nowhere else"
            )
        return self


def words_of(command: str | list[str]) -> tuple[str, ...]:
    """A command's words; no shell reads it.

    Raises:
        ValueError: it has none.
    """
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    if not words:
        raise ValueError("the command is empty")
    return words
