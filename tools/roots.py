"""Roots: the folders that a server of tools is told to work in. They tell, and confine nothing. Pure but for the home.

https://modelcontextprotocol.io/specification/2025-11-25/client/roots
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

MOST_ROOTS = 64
MOST_URI_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or a file, by its URI (`file:///...`)."""

    uri: str
    name: str | None = None


def root(written: str, name: str | None = None) -> Root:
    """From a path, absolute or in the home directory, or a URI. Raises ValueError, which says what is wrong."""
    found = _root(written, name)
    if len(found.uri) > MOST_URI_CHARACTERS:
        raise ValueError(f"the URI of a root has {MOST_URI_CHARACTERS} characters at most")
    return found


def joined(*several: Iterable[Root]) -> tuple[Root, ...]:
    """All of them in order, each once."""
    found: dict[str, Root] = {}
    for roots in several:
        for each in roots:
            found.setdefault(each.uri, each)
    return tuple(found.values())


def _root(written: str, name: str | None) -> Root:
    if len(written) > MOST_URI_CHARACTERS:
        raise ValueError(f"a root has {MOST_URI_CHARACTERS} characters at most")
    if not written.startswith("file:"):
        try:
            path = Path(written).expanduser()
        except RuntimeError as exc:
            raise ValueError(f"{written[:100]!r} is in the home directory of a user that there is not") from exc
        if not written or "\0" in written or not path.is_absolute():
            raise ValueError(f"{written[:100]!r} is neither an absolute path nor a file:// URI")
        return Root(path.as_uri(), name or path.name or None)
    parts = urlsplit(written)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError(f"{written[:100]!r} is no file:///... URI of this machine")
    return Root(f"file://{parts.path}", name)
