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
from tenuto.runtime.terminal.sessions import print_sessions
from tenuto.runtime.terminal.talk import Ending, Talk

INTERRUPTED = 130
EXITS = {Ending.ANSWERED: 0, Ending.FAILED: 1, Ending.STOPPED: INTERRUPTED}
COMMANDS = {
    "/help": "show this list",
    "/new": "/new [NAME]: start another chat",
    "/resume": "/resume NAME: continue a chat",
    "/fork": "/fork [NAME]: continue in a copy of this chat",
    "/sessions": "your chats",
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
    talk = Talk(remote, Display(interactive=False), Lines(yes=yes).decide, model, session, answer_lines)
    return EXITS[talk.send(text)]


class Conversation:
    """The loop of a terminal: read, send, show."""

    def __init__(self, remote: Remote, model: str, session: str | None) -> None:
        self._remote = remote
        self._prompt = Prompt([*COMMANDS])
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
                # Who stops an answer and presses again wants to leave.
                self._armed = self._talk.send(text) is Ending.STOPPED
        except TenutoError as exc:
            self._display.problem(str(exc))
        return True

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

    def _resume(self, name: str) -> None:
        self._talk.session = name
        if not self._talk.resume():
            self._display.note(f"a new chat: {name}", dim=True)


def _new_name() -> str:
    return f"chat-{datetime.now():%Y%m%d-%H%M}-{secrets.token_hex(2)}"
