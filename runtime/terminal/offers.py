"""What MCP servers offer, as a person names it in a chat: `@SERVER:URI` in a message, `SERVER NAME arg=value`.

Asks the server for its lists anew each time: they change. Asks nobody else, and shows nothing.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.runtime.terminal.client import Remote
from tenuto.runtime.terminal.words import shortened

Offer = Mapping[str, Any]
"""A prompt, a resource or a template, as `/v1/mcp` lists it."""
Content = str | list[dict[str, Any]]
"""What a message of a chat completions request says."""
Place = tuple[str, str]
"""A server and the URI of a resource there."""

# An address of mail has something before its @; a URI has a colon.
_NAMED = re.compile(r"(?:^|(?<=[\s(\[{<\"']))@(?=[^\s:]+:)(\S{1,4200})(?!\S)")
_CLOSING = ".,;:!?)]}>\"'"
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is sent. `attached`: the resources that it brings; `unknown`: `@` words that look like such."""

    content: Content
    attached: Sequence[Place] = ()
    unknown: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NamedPrompt:
    """A prompt, and the arguments that have been given."""

    prompt: Offer
    given: Mapping[str, str]

    @property
    def missing(self) -> list[Offer]:
        """The required arguments that have not."""
        return [each for each in self.prompt["arguments"] if each["required"] and each["name"] not in self.given]

    def message(self, more: Mapping[str, str]) -> Message:
        """What is sent of it, with the arguments that were missing."""
        named = {"type": "mcp_prompt", "server": self.prompt["server"], "name": self.prompt["name"]}
        return Message([{**named, "arguments": {**self.given, **more}}])


class Offers:
    """What the servers behind a server of ours offer to this client. Raises what `Remote` does, in every method."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def prompts(self) -> list[Offer]:
        """All prompts."""
        return [*self._remote.listed("/v1/mcp/prompts")]

    def resources(self) -> list[Offer]:
        """All resources that are listed."""
        return [*self._remote.listed("/v1/mcp/resources")]

    def templates(self) -> list[Offer]:
        """The forms of the others."""
        return [*self._remote.listed("/v1/mcp/resources/templates")]

    def message(self, text: str) -> Message:
        """A message with the resources that it names before it. What names none stays text.

        Raises:
            InvalidRequest: several servers have a resource that is named without its server.
        """
        words = [*dict.fromkeys(_NAMED.findall(text))]
        if not words:
            return Message(text)
        known = _Known(self.resources(), self.templates())
        found = {word: known.find(word) for word in words}
        attached = [*dict.fromkeys(place for place in found.values() if place is not None)]
        unknown = [f"@{word}" for word, place in found.items() if place is None and known.has_server(word)]
        if not attached:
            return Message(text, unknown=unknown)
        parts = [{"type": "mcp_resource", "server": server, "uri": uri} for server, uri in attached]
        return Message([*parts, {"type": "text", "text": text}], attached, unknown)

    def named_prompt(self, line: str) -> NamedPrompt:
        """The prompt that `[SERVER] NAME [arg=value ...]` names.

        Raises:
            InvalidRequest: there is none, several servers have it, or an argument is none of its own.
        """
        try:
            words = shlex.split(line)
        except ValueError:
            raise InvalidRequest("a quotation mark is open: quote a value as about='two words'") from None
        if not words:
            raise InvalidRequest("name a prompt: /prompt [SERVER] NAME [arg=value ...]; /prompts lists them")
        prompt, rest = prompt_in(words, self.prompts())
        return NamedPrompt(prompt, _arguments(prompt, rest))


def prompt_in(words: Sequence[str], prompts: Sequence[Offer]) -> tuple[Offer, Sequence[str]]:
    """The prompt that the first words name, and the words after it. Raises InvalidRequest."""
    first, *rest = words
    if rest:
        of_server = (each for each in prompts if (each["server"], each["name"]) == (first, rest[0]))
        if (found := next(of_server, None)) is not None:
            return found, rest[1:]
    named = [each for each in prompts if each["name"] == first]
    if not named:
        meant = rest[0] if rest and any(each["server"] == first for each in prompts) else first
        raise InvalidRequest(f"there is no prompt {_shown(meant)}; /prompts lists them")
    if len(named) > 1:
        servers = ", ".join(each["server"] for each in named)
        raise InvalidRequest(f"several servers have {_shown(first)}: say /prompt SERVER {first}, of {servers}")
    return named[0], rest


def _arguments(prompt: Offer, words: Sequence[str]) -> dict[str, str]:
    known = [each["name"] for each in prompt["arguments"]]
    given: dict[str, str] = {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not is_given:
            raise InvalidRequest(f"{_shown(word)} is no argument: write arg=value, and quote a value with spaces")
        if name not in known:
            takes = ", ".join(known) or "none"
            raise InvalidRequest(f"{prompt['name']} has no argument {_shown(name)}; it has: {takes}")
        if name in given:
            raise InvalidRequest(f"{name} is given twice")
        given[name] = value
    return given


class _Known:
    """The resources that can be named."""

    def __init__(self, resources: Sequence[Offer], templates: Sequence[Offer]) -> None:
        self._templates = [(each["server"], each["uri_template"]) for each in templates]
        self._servers: dict[str, dict[str, None]] = {}
        for each in resources:
            self._servers.setdefault(each["uri"], {})[each["server"]] = None
        self._names = {each["server"] for each in (*resources, *templates)}

    def has_server(self, word: str) -> bool:
        """Whether it begins with the name of a server that has resources."""
        return word.partition(":")[0] in self._names

    def find(self, word: str) -> Place | None:
        """The resource that `SERVER:URI` or `URI` names, as it is or without the punctuation after it."""
        ends = [*_ends(word)]
        for each in ends:
            found = self._one(each, lambda uri: [*self._servers.get(uri, ())])
            if found is not None:
                return found
        return self._one(ends[-1], self._of_templates)

    def _one(self, word: str, having: Callable[[str], Sequence[str]]) -> Place | None:
        server, _, uri = word.partition(":")
        if server in self._names and server in having(uri):
            return server, uri
        servers = having(word)
        if len(servers) > 1:
            raise InvalidRequest(f"several servers have {word}: say @SERVER:{word}, of {', '.join(servers)}")
        return (servers[0], word) if servers else None

    def _of_templates(self, uri: str) -> list[str]:
        return [*dict.fromkeys(server for server, template in self._templates if _fits(uri, template))]


def _ends(word: str) -> Iterator[str]:
    yield word
    while word[-1:] in _CLOSING and len(word) > 1:
        word = word[:-1]
        yield word


def _fits(uri: str, template: str) -> bool:
    """Whether a template is of such resources. One that fits whatever there is names none."""
    before, _, _ = template.partition("{")
    if ":" not in before or not uri.startswith(before) or uri == before:
        return False
    from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

    try:
        return UriTemplate.parse(template).match(uri) is not None
    except InvalidUriTemplate:
        return False


def _shown(text: str) -> str:
    return repr(shortened(text, _SHOWN))
