"""What MCP servers ask, asked in a terminal."""

from typing import Any

from tenuto.runtime.terminal.forms import answer_lines, answered

FORM: dict[str, Any] = {
    "server": "shop",
    "mode": "form",
    "message": "Who?",
    "requested_schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 2},
            "age": {"type": "integer"},
            "news": {"type": "boolean", "default": True},
            "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
        },
        "required": ["name"],
    },
}


def played(question: dict[str, Any], *lines: str) -> tuple[dict[str, Any], list[str]]:
    """The answer to a question, and all that was shown of it."""
    left, shown = list(lines), []

    def ask(text: str) -> str:
        shown.append(text)
        return left.pop(0)

    body = answered(question, ask, shown.append)
    assert left == []
    return body, shown


def test_a_form_is_asked_field_by_field_and_what_does_not_fit_again() -> None:
    body, shown = played(FORM, "y", "A", "Ann", "many", "7", "no", "red, blue")
    assert body == {"action": "accept", "content": {"name": "Ann", "age": 7, "news": False, "colours": ["red", "blue"]}}
    assert shown[0] == "? shop asks: Who?"
    assert sum("Your name" in line for line in shown) == 2
    assert any("red | blue" in line for line in shown)


def test_what_is_left_empty_is_left_out_or_has_its_default() -> None:
    body, _ = played(FORM, "y", "Ann", "", "", "")
    assert body["content"] == {"name": "Ann", "news": True}


def test_a_person_can_decline_and_cancel() -> None:
    assert played(FORM, "n")[0] == {"action": "decline"}
    assert played(FORM, "c")[0] == {"action": "cancel"}


def test_a_link_is_shown_without_what_could_steer_the_terminal() -> None:
    link = {"server": "shop", "mode": "url", "message": "Pay\x1b[2J", "url": "https://pay.example/1"}
    body, shown = played(link, "y")
    assert body == {"action": "accept"}
    assert any("https://pay.example/1" in line for line in shown)
    assert not any("\x1b" in line for line in shown)


def test_where_nobody_is_there_it_is_declined() -> None:
    assert answer_lines(FORM) == {"action": "decline"}
