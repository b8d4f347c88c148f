"""What MCP servers ask, in a terminal: a form field by field, a link shown. What does not fit is asked again."""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from tenuto.runtime.terminal.words import harmless
from tenuto.tools.forms import problem_of_answer

_YES = ("y", "yes", "true")
_NO = ("n", "no", "false")


def answered(question: dict[str, Any], ask: Callable[[str], str], say: Callable[[str], object]) -> dict[str, Any]:
    """Ask a person; the body of the answer. `ask` reads a line, `say` shows one."""
    say(f"? {harmless(question['server'])} asks: {harmless(question['message'])}")
    if question["mode"] == "url":
        say(f"  open {harmless(question['url'])}")
        return {"action": _action(ask("  y opened · n decline · c cancel > "))}
    action = _action(ask("  y answer · n decline · c cancel > "))
    if action != "accept":
        return {"action": action}
    schema = question["requested_schema"]
    content: dict[str, Any] = {}
    for name, field in schema.get("properties", {}).items():
        value = _field(name, field, name in schema.get("required", ()), ask, say)
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


def answer_lines(question: dict[str, Any]) -> dict[str, Any]:
    """The same for a single message: on stderr, and declined where nobody is there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"tenuto: declined because nobody can be asked: {harmless(question['message'])}", err=True)
        return {"action": "decline"}

    def ask(text: str) -> str:
        click.echo(text, nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    return answered(question, ask, lambda text: click.echo(text, err=True))


def _action(line: str) -> str:
    match line.strip().lower():
        case word if word in _YES:
            return "accept"
        case "c" | "cancel":
            return "cancel"
    return "decline"


def _field(
    name: str, field: dict[str, Any], is_required: bool, ask: Callable[[str], str], say: Callable[[str], object]
) -> Any:
    schema = {"type": "object", "properties": {name: field}, "required": [name]}
    while True:
        line = ask(f"  {_label(name, field, is_required)} > ").strip()
        if not line and (not is_required or "default" in field):
            return field.get("default")
        value = _value(line, field)
        problem = problem_of_answer(schema, {name: value})
        if problem is None:
            return value
        say(f"  {problem[1]}")


def _label(name: str, field: dict[str, Any], is_required: bool) -> str:
    label = str(field.get("title") or name)
    told = [str(field["description"])] if "description" in field else []
    items = field.get("items", field)
    choices = items.get("enum") or [one.get("const") for one in items.get("oneOf") or items.get("anyOf") or ()]
    told += [" | ".join(map(str, choices))] if choices else []
    told += [f"default {json.dumps(field['default'])}"] if "default" in field else []
    told += [] if is_required or "default" in field else ["may be empty"]
    return harmless(label + (f" ({'; '.join(told)})" if told else ""))


def _value(line: str, field: dict[str, Any]) -> Any:
    match field.get("type"):
        case "boolean":
            return {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}.get(line.lower(), line)
        case "integer" | "number":
            try:
                return json.loads(line)
            except ValueError:
                return line
        case "array":
            return [each.strip() for each in line.split(",") if each.strip()]
    return line
