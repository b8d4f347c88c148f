"""What a person types: messages with line editing, and answers to approvals. Built on prompt_toolkit."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from tenuto.runtime.terminal.forms import answered
from tenuto.runtime.terminal.talk import NOBODY, ApprovalAnswer
from tenuto.runtime.terminal.words import harmless

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings

Suggest = Callable[[str], Iterable[tuple[str, str]]]
"""What the end of a text may become: that end, and what it may be instead. Called in a worker thread."""
QUESTION = "  y yes · n no · a always in this chat · d no, and say why > "


class Prompt:
    """Lines with editing, history and completion. A paste of several lines is one message."""

    def __init__(self, suggest: Suggest) -> None:
        from prompt_toolkit import PromptSession

        self._messages: PromptSession[str] = PromptSession(
            completer=_completer(suggest),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation="  ",
        )
        self._answers: PromptSession[str] = PromptSession()

    def message(self) -> str:
        """The next message. Raises KeyboardInterrupt on Ctrl-C and EOFError on Ctrl-D."""
        return self._messages.prompt("> ")

    def decide(self, words: str) -> ApprovalAnswer:
        """Ask about a call until the answer is one."""
        click.secho(f"? may it call {harmless(words)}", fg="yellow", bold=True)
        while True:
            decision = decision_of(self._answers.prompt(QUESTION), self._why)
            if decision is not None:
                return decision

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask what an MCP server asks, field by field."""
        return answered(question, self._answers.prompt, click.echo)

    def argument(self, words: str) -> str:
        """An argument of a prompt, described in words."""
        return self._answers.prompt(f"  {harmless(words)} > ")

    def _why(self) -> str:
        return self._answers.prompt("  what should the model be told > ")


class Lines:
    """The same questions for a single message: on stderr, so that stdout has the answer alone."""

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes

    def decide(self, words: str) -> ApprovalAnswer:
        """Approve where `--yes` said so, ask where somebody is there, and deny otherwise."""
        if self._yes:
            return ApprovalAnswer(approve=True)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            click.echo(f"tenuto: denied because nobody can be asked: {harmless(words)}; approve with --yes", err=True)
            return ApprovalAnswer(approve=False, message=NOBODY)
        click.echo(f"? may it call {harmless(words)}", err=True)
        while True:
            decision = decision_of(_line(QUESTION), lambda: _line("  what should the model be told > "))
            if decision is not None:
                return decision


def decision_of(answer: str, why: Callable[[], str]) -> ApprovalAnswer | None:
    """What an answer means; None where it means nothing."""
    match answer.strip().lower():
        case "y" | "yes":
            return ApprovalAnswer(approve=True)
        case "n" | "no":
            return ApprovalAnswer(approve=False)
        case "a" | "always":
            return ApprovalAnswer(approve=True, always=True)
        case "d" | "deny":
            return ApprovalAnswer(approve=False, message=why().strip() or None)
    return None


def _line(question: str) -> str:
    click.echo(question, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _completer(suggest: Suggest) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document

    class Suggesting(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
            return (Completion(whole, -len(begun)) for begun, whole in suggest(document.text_before_cursor))

    return ThreadedCompleter(Suggesting())


def _keys() -> "KeyBindings":
    """Enter sends, Alt-Enter begins another line."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
