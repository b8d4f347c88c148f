"""What a line of a chat may go on with: commands, prompts and their arguments, resources after an `@`. No terminal."""

import re
import shlex
from collections.abc import Iterator, Sequence

from tenuto.errors import TenutoError
from tenuto.runtime.terminal.offers import Offer, Offers, prompt_in

_PROMPT = "/prompt "
_RESOURCE = re.compile(r"(?:^|[\s(\[{<\"'])@(\S*)$")


class Suggestions:
    """For Tab. A server that does not answer suggests nothing."""

    def __init__(self, commands: Sequence[str], offers: Offers) -> None:
        self._commands, self._offers = commands, offers

    def after(self, text: str) -> Iterator[tuple[str, str]]:
        """What the end of a text may become: that end, and what it may be instead."""
        try:
            if text.startswith(_PROMPT) and "\n" not in text:
                yield from _of_prompts(text.removeprefix(_PROMPT), self._offers.prompts())
            elif text.startswith("/") and "\n" not in text:
                yield from ((text, each) for each in self._commands if each.startswith(text))
            elif (found := _RESOURCE.search(text)) is not None:
                yield from _of_resources(found[1], self._offers.resources(), self._offers.templates())
        except TenutoError:
            return


def _of_prompts(line: str, prompts: Sequence[Offer]) -> Iterator[tuple[str, str]]:
    typeable = [each for each in prompts if each["name"].isprintable()]
    names = [shlex.quote(each["name"]) for each in typeable]
    whole = [f"{each['server']} {name}" for each, name in zip(typeable, names, strict=True)]
    whole += [name for name in names if names.count(name) == 1]
    yield from ((line, each) for each in whole if each.startswith(line))
    head, _, begun = line.rpartition(" ")
    try:
        prompt, given = prompt_in(shlex.split(head), typeable)
    except (ValueError, TenutoError):  # no prompt yet, or a quotation that goes on
        return
    names = [each["name"] for each in prompt["arguments"] if each["name"].isprintable()]
    left = [name for name in names if not any(word.startswith(f"{name}=") for word in given)]
    yield from ((begun, f"{name}=") for name in left if name.startswith(begun))


def _of_resources(begun: str, resources: Sequence[Offer], templates: Sequence[Offer]) -> Iterator[tuple[str, str]]:
    places = [(each["server"], each["uri"]) for each in resources]
    places += [(each["server"], each["uri_template"].partition("{")[0]) for each in templates]
    places = [(server, uri) for server, uri in places if uri and uri.isprintable() and " " not in uri]
    uris = [uri for _, uri in places]
    whole = [f"{server}:{uri}" for server, uri in places] + [uri for uri in uris if uris.count(uri) == 1]
    yield from ((begun, each) for each in dict.fromkeys(whole) if each.startswith(begun))
