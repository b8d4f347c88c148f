"""What a stored model may be called, and how one of its versions is named beside it. Pure.

A name reads as one of the Hub or of Ollama does: `qwen3`, `qwen3:4b`, `Qwen/Qwen3-4B-GGUF:Q4_K_M`. Two that differ in
case alone are one, as they would be in the folders of many machines, and the tag `latest` says nothing.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote

from tenuto.errors import ModelLoadFailed

_NAME = re.compile(r"[A-Z0-9][\w.-]*(?:/[A-Z0-9][\w.-]*){0,2}(?::[\w.-]+)?", re.ASCII | re.IGNORECASE)
_VERSION = re.compile(r"[0-9a-f]{4,64}")
_LONGEST = 160
_WORDS = frozenset({"embedded", "default", "scripted", "hf", "ollama", "http", "https", "file"})
"""They mean something else where a model is named."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A stored model as a user names it: `NAME`, or `NAME@VERSION` with the first digits of a version."""

    name: str
    version: str | None = None


def require(name: str) -> str:
    """Give a name without `:latest`.

    Raises:
        ModelLoadFailed: it cannot be one.
    """
    name = name.removesuffix(":latest")
    if not is_name(name):
        raise ModelLoadFailed(
            f"{name!r} cannot be the name of a model: it takes letters, digits and ._- in up to three parts with /"
            " between them, and a tag after a colon"
        )
    return name


def is_name(text: str) -> bool:
    """Whether a text can be the name of a stored model."""
    return bool(_NAME.fullmatch(text)) and len(text) <= _LONGEST and text.lower().partition(":")[0] not in _WORDS


def reference(text: str) -> Reference:
    """Read `NAME` or `NAME@VERSION`.

    Raises:
        ModelLoadFailed: it is neither.
    """
    name, at, version = text.partition("@")
    if at and not _VERSION.fullmatch(version.lower()):
        raise ModelLoadFailed(f"{text!r} does not name a version: after the @ stand at least four of its hex digits")
    return Reference(require(name), version.lower() or None)


def key(name: str) -> str:
    """The name of the folder of a model, the same for all spellings of it."""
    return quote(name.removesuffix(":latest").lower(), safe="")
