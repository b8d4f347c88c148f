"""How values of settings are read from flags, the environment and the file, and the forms that some of them have."""

import json
import re
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from tenuto.paths import expanded
from tenuto.pipelines.adapters import NAME, Adapter, parsed
from tenuto.runtime.addresses import is_loopback


def several(value: Any) -> Any:
    """The environment has no lists: there, values are parted by commas, or stand in a JSON list."""
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        return json.loads(value)
    return tuple(part.strip() for part in value.split(",") if part.strip())


def objects(value: Any) -> Any:
    """Flags and the environment have no tables: there, each is a JSON object, or all stand in a JSON list."""
    if isinstance(value, str):
        value = json.loads(value)
        return value if isinstance(value, list) else [value]
    if isinstance(value, (tuple, list)):
        return [json.loads(each) if isinstance(each, str) else each for each in value]
    return value


def pairs(value: Any) -> Any:
    """Flags and the environment have no tables: there, each pair is written NAME=VALUE."""
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(_pair(each) if isinstance(each, str) else each for each in several(value))


def adapters(value: Any) -> Any:
    """As pairs, NAME=PATH or NAME=PATH@SCALE, each adapter once."""
    found = [each if isinstance(each[1], Adapter) else (each[0], _adapter(*each)) for each in pairs(value)]
    if len({name for name, _ in found}) < len(found):
        raise ValueError("two adapters have one name")
    return tuple(found)


def _adapter(name: str, text: str) -> Adapter:
    if not NAME.fullmatch(name):
        raise ValueError(f"an adapter is called by letters, digits and ._- alone, and not {name!r}")
    adapter = parsed(text)
    return replace(adapter, path=expanded(adapter.path))


def formats(value: Any) -> Any:
    """As pairs; a name alone is for all models."""
    if isinstance(value, dict):
        return tuple(value.items())
    texts = [f"*={each}" if isinstance(each, str) and "=" not in each else each for each in several(value)]
    return pairs(texts)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def words(value: Any) -> Any:
    """`all` and `none` are words, however they came; anything else is a list of names."""
    names = several(value)
    return names[0] if isinstance(names, (tuple, list)) and len(names) == 1 and names[0] in ("all", "none") else names


KEY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Key(BaseModel):
    """A key, and what its holder is: without a `name` nobody but this key, with one the user of that name.

    A `person` stands behind each of its requests, so that a tool that asks may be called by them; an `admin` sees what
    the programs of MCP servers write.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(repr=False, pattern=r"\S")
    name: str | None = Field(None, pattern=f"^{KEY_NAME.pattern}$")
    person: bool = False
    admin: bool = False


def web_address(text: str) -> str:
    """A URL that others are told: without user, query and fragment, and without a slash at its end.

    Raises:
        ValueError: it is none.
    """
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https") or url.username is not None or url.query or url.fragment:
        raise ValueError(f"{text!r} is no URL of the form https://HOST[:PORT][/PATH]")
    return text.rstrip("/")


def issuer(text: str) -> str:
    """An issuer's identifier as its tokens have it, character by character; in the clear only on this machine.

    Raises:
        ValueError: it is none.
    """
    web_address(text)
    url = urlsplit(text)
    if url.scheme != "https" and not is_loopback(url.hostname or ""):
        raise ValueError(f"{text!r} must begin with https://: whoever sits between could sign tokens")
    return text


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(several)]
IssuerUrl = Annotated[str, AfterValidator(issuer)]
PublicUrl = Annotated[str, AfterValidator(web_address)]
