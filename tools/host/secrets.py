"""What of a server's configuration must not be shown, and how it is kept out of what the server says."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlsplit

from tenuto.tools.mcp_config import HttpTarget, StdioTarget

HIDDEN = "***"
_MOST_LEARNED = 32
_LEAST_CHARACTERS = 4
"""Shorter values are no secrets, and every line has them in it."""
_NO_SECRETS = frozenset({"true", "false", "none", "null", "auto", "bearer", "basic", "token"})

# What the name of an option, a variable or a field calls a secret; `key` and its like only where the name ends.
_NAME = r"[\w.-]*(?:token|secret|passw|passphrase|credential|auth|cookie|signature|(?:key|pat|pwd|pw)(?![\w.-]))[\w.-]*"
_OPTION = re.compile(rf"-{{1,2}}{_NAME}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"""{_NAME}["']?\s*[=:]\s*["']?(?:(?:bearer|basic|token)\s+)?([^\s"',;}}]+)""", re.IGNORECASE)
_URL = re.compile(r"""[a-z][a-z0-9+.-]*://[^\s"']+""", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_.+~-]{16,}={0,2}")
_FILE_ENDING = re.compile(r"\.[A-Za-z0-9]{1,5}")


class Secrets:
    """The values of a target's environment, headers, URL and login, and what of its arguments is one by its name or
    form."""

    def __init__(self, target: StdioTarget | HttpTarget) -> None:
        self._words = _secret_words(_values(target))
        self._learned: dict[str, None] = {}

    def learn(self, value: str) -> None:
        """What is sent from now on is a secret too, as a token that was renewed; the last few are known."""
        for word in _secret_words([value]):
            self._learned.pop(word, None)
            self._learned[word] = None
        for word in list(self._learned)[:-_MOST_LEARNED]:
            del self._learned[word]

    def hidden(self, text: str) -> str:
        """The text without them."""
        for word in sorted((*self._words, *self._learned), key=len, reverse=True):
            text = text.replace(word, HIDDEN)
        return text

    def hidden_in(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The lines without them."""
        return tuple(self.hidden(line) for line in lines)


def _secret_words(values: Iterable[str]) -> list[str]:
    words = {word for value in values for word in (value, *value.split())}
    return [word for word in words if len(word) >= _LEAST_CHARACTERS and word.lower() not in _NO_SECRETS]


def _values(target: StdioTarget | HttpTarget) -> Iterator[str]:
    if isinstance(target, StdioTarget):
        yield from target.env.values()
        yield from _arguments(target)
        return
    yield from target.headers.values()
    yield from _of_url(target.url)
    if target.oauth is not None:
        yield from target.oauth.secrets
    if target.egress is not None:  # what a request brings is not the operator's, and some are secret by their path
        yield urlsplit(target.url).path


def _arguments(target: StdioTarget) -> Iterator[str]:
    """What follows a telling name, what a variable gave, what a URL keeps before its host or in its query, and what
    looks as if nobody had thought it up. All of them cannot be hidden: they name the files that an error is about.
    """
    yield from (value for value in target.expanded if "/" not in value)
    for before, argument in zip(("", *target.args), target.args, strict=False):
        if _OPTION.fullmatch(before):
            yield argument
        yield from _ASSIGNED.findall(argument)
        for url in _URL.findall(argument):
            yield from _of_url(url)
        yield from filter(_is_random, _WORD.findall(argument))


def _of_url(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
    except ValueError:
        return
    yield url.query
    yield from (value for _, value in parse_qsl(url.query))
    yield from (each for each in (url.username, url.password) if each)


def _is_random(word: str) -> bool:
    """Whether a word mixes letters and digits as keys do and names do not."""
    if _FILE_ENDING.fullmatch(word[word.rfind(".") :] if "." in word else ""):
        return False
    plain = word.replace("-", "")
    if len(plain) >= 32 and re.fullmatch(r"[0-9a-fA-F]+", plain):
        return True
    return bool(re.search("[a-z]", word) and re.search("[A-Z]", word) and re.search("[0-9]", word))
