"""What MCP servers offer, in words for a terminal: each entry in lines of its own, whatever its server says in it."""

from collections.abc import Callable, Sequence

import click

from tenuto.runtime.terminal.offers import Offer, Offers
from tenuto.runtime.terminal.words import print_table, shortened

_NAME, _WORDS = 300, 200


def print_prompts(offers: Offers) -> None:
    """All prompts, with their arguments: `about [tone]`, where tone may be left out."""
    _print(
        offers.prompts(),
        ("server", "prompt", "arguments", "description"),
        lambda each: [each["name"], " ".join(map(_argument, each["arguments"])), _words(each)],
        "prompt",
    )


def print_resources(offers: Offers) -> None:
    """All resources that are listed, and the forms of the others."""
    _print(
        [*offers.resources(), *offers.templates()],
        ("server", "resource", "type", "description"),
        lambda each: [each.get("uri") or each["uri_template"], each["mime_type"] or "", _words(each)],
        "resource",
    )


def described(argument: Offer) -> str:
    """An argument, as it is asked for."""
    words = _words(argument)
    name = shortened(argument["name"], _NAME)
    return f"{name} ({words}; empty: give up)" if words else f"{name} (empty: give up)"


def _print(found: Sequence[Offer], columns: Sequence[str], row: Callable[[Offer], list[str]], what: str) -> None:
    if not found:
        click.echo(f"no MCP server has a {what} for you")
        return
    print_table(columns, [[each["server"], *(shortened(cell, _NAME) for cell in row(each))] for each in found])


def _argument(argument: Offer) -> str:
    return str(argument["name"]) if argument["required"] else f"[{argument['name']}]"


def _words(offer: Offer) -> str:
    words = offer["description"] or offer["title"] or ""
    return shortened(words, _WORDS)
