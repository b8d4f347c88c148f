"""What of a server's configuration must not be shown, and how it is kept out of what the server says."""

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlsplit

from tenuto.tools.mcp_config import HttpTarget, StdioTarget

HIDDEN = "***"
_LEAST_CHARACTERS = 4
"""Shorter values are no secrets, and every line has them in it."""


class Secrets:
    """The values of a target's environment, headers and URL."""

    def __init__(self, target: StdioTarget | HttpTarget) -> None:
        words = {word for value in _values(target) for word in (value, *value.split())}
        self._words = sorted((word for word in words if len(word) >= _LEAST_CHARACTERS), key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text without them."""
        for word in self._words:
            text = text.replace(word, HIDDEN)
        return text

    def hidden_in(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The lines without them."""
        return tuple(self.hidden(line) for line in lines)


def _values(target: StdioTarget | HttpTarget) -> Iterator[str]:
    if isinstance(target, StdioTarget):
        yield from target.env.values()
        return
    yield from target.headers.values()
    url = urlsplit(target.url)
    yield url.query
    yield from (value for _, value in parse_qsl(url.query))
    yield from (each for each in (url.username, url.password) if each)
