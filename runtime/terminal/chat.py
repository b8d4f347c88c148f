"""`tenuto chat`: a conversation in the terminal, or one message through a pipe."""

import secrets
import sys
from datetime import datetime

import click

from tenuto.errors import TenutoError
from tenuto.runtime.terminal.ask import Lines, Prompt
from tenuto.runtime.terminal.client import Remote
from tenuto.runtime.terminal.display import Display
from tenuto.runtime.terminal.forms import answer_lines
from tenuto.runtime.terminal.offer_tables import described, print_prompts, print_resources
from tenuto.runtime.terminal.offers import Message, Offers
from tenuto.runtime.terminal.sessions import print_sessions
from tenuto.runtime.terminal.suggestions import Suggestions
from tenuto.runtime.terminal.talk import Ending, Talk

INTERRUPTED = 130
EXITS = {Ending.ANSWERED: 0, Ending.FAILED: 1, Ending.STOPPED: INTERRUPTED}
COMMANDS = {
    "/help": "show this list",
    "/new": "/new [NAME]: start another chat",
    "/resume": "/resume NAME: continue a chat",
    "/fork": "/fork [NAME]: continue in a copy of this chat",
    "/sessions": "your chats",
    "/prompts": "prompts of MCP servers",
    "/prompt": "/prompt [SERVER] NAME [arg=value ...]: send one; what is missing is asked for",
    "/resources": "resources of MCP servers; @SERVER:URI in a message attaches one",
    "/quit": "leave; the chat is kept",
}
_KEYS = "Enter sends, Alt-Enter adds a line, Ctrl-C stops the answer, Ctrl-D quits."


def run(remote: Remote, *, session: str | None, model: str | None, message: str | None, yes: bool) -> int:
    """The whole command; its exit code."""
    model = remote.model(model)
    if message is None and sys.stdin.isatty() and sys.stdout.isatty():
        return Conversation(remote, model, session).run()
    text = message if message is not None else sys.stdin.read()
    if not text.strip():
        raise click.UsageError("no message: give one as an argument or on stdin")
    display = Display(interactive=False)
    talk = Talk(remote, display, Lines(yes=yes).decide, model, session, answer_lines)
    # What comes through a pipe is data: whoever wrote it must not reach for resources.
    said = Message(text) if message is None else Offers(remote).message(text)
    display.attached(said)
    return EXITS[talk.send(said.content)]


class Conversation:
    """The loop of a terminal: read, send, show."""

    def __init__(self, remote: Remote, model: str, session: str | None) -> None:
        self._remote = remote
        self._offers = Offers(remote)
        self._prompt = Prompt(Suggestions([*COMMANDS], self._offers).after)
        self._display = Display(interactive=True)
        self._named = session is not None
        self._talk = Talk(
            remote, self._display, self._prompt.decide, model, session or _new_name(), self._prompt.answer
        )
        self._armed = False

    def run(self) -> int:
        """Until the person leaves."""
        self._display.note(f"tenuto at {self._remote.url} · {_KEYS} /help", dim=True)
        try:
            if self._named:
                self._resume(str(self._talk.session))
            else:
                self._display.note(f"a new chat: {self._talk.session}", dim=True)
            while self._turn():
                pass
        except EOFError:
            pass
        self._display.note(f"to continue: tenuto chat --session {self._talk.session}", dim=True)
        return 0

    def _turn(self) -> bool:
        """One line of the person's; false where it is the last."""
        try:
            text = self._prompt.message().strip()
        except KeyboardInterrupt:
            if self._armed:
                return False
            self._armed = True
            self._display.note("press Ctrl-C again to quit", dim=True)
            return True
        self._armed = False
        try:
            if text.startswith("/") and "\n" not in text:
                return self._command(text)
            if text:
                self._send(self._offers.message(text))
        except TenutoError as exc:
            self._display.problem(str(exc))
        except KeyboardInterrupt:  # in the middle of a command
            self._armed = True
            self._display.note("stopped", fg="yellow")
        return True

    def _send(self, message: Message) -> None:
        self._display.attached(message)
        # Who stops an answer and presses again wants to leave.
        self._armed = self._talk.send(message.content) is Ending.STOPPED

    def _command(self, text: str) -> bool:
        word, _, rest = text.partition(" ")
        name = rest.strip() or _new_name()
        match word:
            case "/quit" | "/exit":
                return False
            case "/help":
                self._display.note("\n".join([*(f"{key:10} {line}" for key, line in COMMANDS.items()), _KEYS]))
            case "/sessions":
                print_sessions(self._remote, implicit=False)
            case "/prompts":
                print_prompts(self._offers)
            case "/prompt":
                self._send_prompt(rest)
            case "/resources":
                print_resources(self._offers)
            case "/new":
                self._talk.session = name
                self._resume(name)
            case "/resume" if rest.strip():
                self._resume(name)
            case "/fork":
                self._talk.fork(name)
                self._display.note(f"this is now {name}, a copy", dim=True)
            case _:
                self._display.note(f"unknown command {text}; /help lists them", fg="yellow")
        return True

    def _send_prompt(self, line: str) -> None:
        named = self._offers.named_prompt(line)
        more: dict[str, str] = {}
        for argument in named.missing:
            try:
                value = self._prompt.argument(described(argument)).strip()
            except KeyboardInterrupt:
                value = ""
            if not value:
                self._display.note("the prompt was not sent", fg="yellow")
                return
            more[argument["name"]] = value
        self._send(named.message(more))

    def _resume(self, name: str) -> None:
        self._talk.session = name
        if not self._talk.resume():
            self._display.note(f"a new chat: {name}", dim=True)


def _new_name() -> str:
    return f"chat-{datetime.now():%Y%m%d-%H%M}-{secrets.token_hex(2)}"
