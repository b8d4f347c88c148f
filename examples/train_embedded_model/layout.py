"""A conversation as the text of the chat template, in the pieces that are tokenised apart.

`chat_template.jinja` is the same in the language that servers know; a test holds that both agree. Tools are listed in
a short form: a description, then the name, and a line for each parameter. The name can gather what was said before it,
and a call copies name and parameters in one go. After every request stand the names again: only what comes after a
request can hold the two against each other. Calls and results are in the Hermes format.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_embedded_model.conversations import Conversation, Message, to_text

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>")
CONTROL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
MACROS = ('{"name": "', '", "arguments": ', '{"', '": "', '", "', '": ', '"}', ', "')
"""Single tokens for what every call is full of. Each begins and ends where the template's own text does."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is tokenised by itself. `trained`: it is what the model shall say."""

    text: str
    trained: bool = False


def pieces(talk: Conversation) -> list[Piece]:
    """The whole conversation. Every assistant's message is one piece that is trained on."""
    made: list[Piece] = []
    if talk.system or talk.tools:
        made.append(Piece("<|im_start|>system\n"))
        if talk.system:
            made.append(Piece(talk.system))
        if talk.tools:
            made.append(Piece("\n\n<tools>\n" if talk.system else "<tools>\n"))
            for tool in talk.tools:
                made += _tool(tool["function"])
            made.append(Piece("</tools>"))
        made.append(Piece("<|im_end|>\n"))
    names = [tool["function"]["name"] for tool in talk.tools]
    before: Message | None = None
    for message in talk.messages:
        if before is not None and before.role == "tool" and message.role != "tool":
            made.append(Piece("<|im_end|>\n"))
        made += _message(message, names, follows_result=before is not None and before.role == "tool")
        before = message
    if before is not None and before.role == "tool":
        made.append(Piece("<|im_end|>\n"))
    return made


def _message(message: Message, names: list[str], *, follows_result: bool) -> list[Piece]:
    match message.role:
        case "user":
            return [Piece("<|im_start|>user\n"), Piece(message.text), *_again(names), Piece("<|im_end|>\n")]
        case "tool":
            begin = "" if follows_result else "<|im_start|>user"
            return [Piece(f"{begin}\n<tool_response>\n"), Piece(message.text), Piece("\n</tool_response>")]
        case "assistant":
            said = [message.text] if message.text else []
            said += [to_text(call) for call in message.calls]
            return [Piece("<|im_start|>assistant\n"), Piece("\n".join(said) + "<|im_end|>", True), Piece("\n")]


def _again(names: list[str]) -> list[Piece]:
    if not names:
        return []
    listed = [piece for name in names for piece in (Piece(name), Piece("\n"))]
    return [Piece("\n<tools>\n"), *listed, Piece("</tools>")]


def _tool(function: dict[str, Any]) -> list[Piece]:
    made = [Piece("# ")]
    if function.get("description"):
        made += [Piece(function["description"]), Piece("\n")]
    return [*made, Piece(function["name"]), Piece("\n"), *_properties(function["parameters"], indent="")]


def _properties(schema: dict[str, Any], indent: str) -> list[Piece]:
    made: list[Piece] = []
    for name, inner in schema.get("properties", {}).items():
        optional = "" if name in schema.get("required", ()) else "?"
        made += [Piece(f"{indent}- "), Piece(name), Piece(f"{optional}: "), *_type(inner)]
        if inner.get("description"):
            made += [Piece(" "), Piece(inner["description"])]
        made.append(Piece("\n"))
        for nested in (inner, inner.get("items", {})):
            made += _properties(nested, indent + "  ")
    return made


def _type(schema: dict[str, Any]) -> list[Piece]:
    if "enum" in schema:
        made: list[Piece] = []
        for number, value in enumerate(schema["enum"]):
            made += [Piece("|")] if number else []
            made.append(Piece(json.dumps(value, ensure_ascii=False)))
        return made
    if schema.get("type") == "array":
        return [*_type(schema.get("items", {})), Piece("[]")]
    return [Piece(schema.get("type", "any"))]
