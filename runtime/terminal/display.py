"""How a conversation looks: the answer as it streams, tool calls as lines of their own. Nothing is asked here."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import click

from tenuto.runtime.terminal.events import Broke, Calling, Returned, Said, Seen
from tenuto.runtime.terminal.offers import Message
from tenuto.runtime.terminal.words import arguments_of, harmless, shortened

ARGUMENTS, RESULT = 120, 160
HISTORY_ITEMS = 20


class Display:
    """Writes answers to stdout. What is no answer goes there too in a terminal, and to stderr where stdout is piped."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self._beside: TextIO = sys.stdout if interactive else sys.stderr
        self._in_line = False
        self._reasoning = False

    def show(self, seen: Seen) -> None:
        """One event of an answer."""
        match seen:
            case Said(text, reasoning=True):
                if self.interactive:
                    self._reasoning = True
                    self._write(text, dim=True)
            case Said(text):
                if self._reasoning:
                    self.end_line()
                    self._reasoning = False
                self._write(text)
            case Calling(name, arguments):
                self.note(f"→ {name}({shortened(arguments_of(arguments), ARGUMENTS)})", fg="cyan")
            case Returned(name, status, result):
                mark, colour = ("←", "cyan") if status == "completed" else (f"← {status}:", "yellow")
                self.note(f"{mark} {shortened(result, RESULT)}  [{name}]", fg=colour)
            case Broke(message):
                self.problem(message)

    def note(self, text: str, **style: Any) -> None:
        """A line that is no part of the answer."""
        self.end_line()
        self._reasoning = False
        click.secho(harmless(text), file=self._beside, **style)

    def attached(self, message: Message) -> None:
        """What a message brings besides its text."""
        for server, uri in message.attached:
            self.note(f"attached: {shortened(uri, ARGUMENTS)} of {server}", dim=True)
        for word in message.unknown:
            self.note(f"no such resource, sent as text: {shortened(word, ARGUMENTS)}", fg="yellow")

    def problem(self, text: str) -> None:
        """Something went wrong."""
        self.note(f"error: {shortened(text, 2000)}", fg="red")

    def end_line(self) -> None:
        """Go to the beginning of a line, if not there."""
        if self._in_line:
            click.echo()
            self._in_line = False

    def usage(self, run: Mapping[str, Any]) -> None:
        """What the answer cost; of use to a person who watches, and noise in a pipe."""
        if self.interactive:
            usage = run["usage"]
            figures = f"{usage['computed_tokens']} computed, {usage['cached_tokens']} cached"
            why = "" if run["stop_reason"] in (None, "end") else f" · {run['stop_reason']}"
            self.note(f"[{usage['completion_tokens']} tokens · prompt {figures}{why}]", dim=True)

    def history(self, items: Sequence[Mapping[str, Any]]) -> None:
        """The last items of a conversation."""
        left_out = max(0, len(items) - HISTORY_ITEMS)
        if left_out:
            self.note(f"… {left_out} earlier items; `tenuto sessions show` has them all", dim=True)
        for item in items[left_out:]:
            self.item(item)

    def item(self, item: Mapping[str, Any]) -> None:
        """One stored item."""
        match item["kind"]:
            case "system":
                self.note(f"system: {shortened(item['text'], RESULT)}", dim=True)
            case "user" if (item.get("source") or {}).get("kind") == "mcp_resource":
                self.note(f"> @{item['source']['server']}:{item['source']['uri']}", bold=True)
            case "user":
                self.note(f"> {item['text']}", bold=True)
            case "assistant":
                if item["text"]:
                    self.note(item["text"] + (" …" if item["incomplete"] else ""))
                for call in item["calls"]:
                    self.show(Calling(call["name"], call["arguments"]))
            case "tool_result":
                self.show(Returned(item["name"], "failed" if item["is_error"] else "completed", item["text"]))

    def _write(self, text: str, **style: Any) -> None:
        shown = harmless(text)
        if shown:
            click.secho(shown, nl=False, **style)
            self._in_line = not shown.endswith("\n")
