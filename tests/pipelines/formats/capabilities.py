"""What Tenuto makes of a model's chat template, found out by trying. `python -m tests.pipelines.formats.capabilities`
writes the table in docs/models.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tenuto.errors import TemplateFailed
from tenuto.pipelines.base import ToolChoice
from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.turns import CallFinished
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tests.pipelines.formats.real_templates import templates
from tests.pipelines.formats.vocabularies import TOOLS, ByteTokenizer
from tests.pipelines.masks import lets

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
BEGIN, END = "<!-- templates: made by a test -->\n", "<!-- end of templates -->\n"
_MARKER = re.compile(
    r"<[|｜][^<>{}'\"\s]+[|｜]>|</?[a-z_:]+>|<[|]?[a-z_]+[|]?>|\[/?[A-Z_]{3,}\]|\[e~\[|\]~[a-z]\]|</s>|<s>"
)
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
_ID = "call00001"

ASK = UserItem("Now?")
CALL = AssistantItem(calls=(ToolCall(_ID, "f", '{"a": "b"}'),))
TWO = AssistantItem(calls=(ToolCall(_ID, "f", '{"a": "b"}'), ToolCall("call00002", "g", '{"n": 1}')))
RESULT = ToolResultItem(_ID, "f", "it is noon")
HISTORY: tuple[Item, ...] = (ASK, CALL, RESULT, AssistantItem("Noon."), UserItem("Thanks."))
TALK: tuple[Item, ...] = (ASK, AssistantItem("Noon."), UserItem("Thanks."))


@dataclass(frozen=True, slots=True)
class Capability:
    """One row of the table."""

    template: str
    form: str
    call: str
    several: str
    result: str
    held: str
    pieces: str
    renders: str

    @property
    def row(self) -> str:
        cells = (self.template, self.form, self.call, self.several, self.result, self.held, self.pieces, self.renders)
        return f"| {' | '.join(cells)} |"


def codec_of(template: str) -> tuple[ByteTokenizer, TemplateCodec]:
    """With a vocabulary of bytes and of all markers that the template names."""
    markers = list(dict.fromkeys([*_MARKER.findall(template), *_SPECIAL.values()]))
    stops = _MARKER.findall(ChatTemplate(template, _SPECIAL).closing)[-1:]
    stops += [
        marker for marker in ("<|call|>", "<|return|>", "<|eom_id|>") if marker in markers and marker not in stops
    ]
    tokenizer = ByteTokenizer(markers, stops)
    tokenizer.special_texts = _SPECIAL
    return tokenizer, TemplateCodec("m", tokenizer, template)


def capability(name: str, template: str, *, tried: bool = True) -> Capability:
    """What is made of one template; `tried`: also by many long conversations, which takes a while."""
    tokenizer, codec = codec_of(template)
    form = codec.tool_format.form
    if not form.calls:
        return Capability(name, form.name, "-", "-", "-", "-", _pieces(codec, TALK), _renders(codec, tried))
    return Capability(
        name, form.name, _read_back(codec, CALL), _read_back(codec, TWO), _result(codec), _held(tokenizer, codec),
        _pieces(codec, HISTORY), _renders(codec, tried),
    )  # fmt: skip


def turn(codec: TemplateCodec, item: AssistantItem) -> list[int]:
    """The tokens of a turn that the template writes, after what it has in common with what opens one."""
    opening = codec.suffix([ASK], [], TOOLS, ended=False).opening
    tokens = codec.suffix([ASK], [item], TOOLS, ended=False).items[0]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(opening, tokens, strict=False)))
    return list(tokens[same:])


def _read_back(codec: TemplateCodec, item: AssistantItem) -> str:
    try:
        tokens = turn(codec, item)
    except TemplateFailed as error:
        return f"refused: {str(error)[:60]}"
    parser = codec.parser(calls=True, tools=TOOLS)
    tokens.append(min(codec.info.stop_tokens))
    events = [event for token in tokens for event in parser.push(token)] + parser.finish()
    read = [(event.name, event.arguments) for event in events if isinstance(event, CallFinished)]
    wanted = [(call.name, call.arguments) for call in item.calls]
    if read == wanted:
        return "yes"
    return "not written" if not any(call.name.encode() in _text(codec, tokens) for call in item.calls) else "other"


def _text(codec: TemplateCodec, tokens: list[int]) -> bytes:
    return codec.detokenize(tokens).encode()


def _result(codec: TemplateCodec) -> str:
    try:
        rendered = codec.suffix([ASK, CALL], [RESULT], TOOLS, ended=True)
    except TemplateFailed as error:
        return f"refused: {str(error)[:60]}"
    return "yes" if RESULT.text in codec.detokenize(rendered.items[0]) else "not written"


def _held(tokenizer: ByteTokenizer, codec: TemplateCodec) -> str:
    """Whether a turn that the template writes is let through by both grammars."""
    try:
        tokens = turn(codec, CALL)
    except TemplateFailed:
        return "-"
    ways = []
    for choice in (ToolChoice.REQUIRED, ToolChoice.AUTO):
        source = codec.grammar(TOOLS, choice, parallel=True)
        assert source is not None
        for begin in range(len(tokens)):
            constraint = codec.constraint(source)
            passed = 0
            for token in tokens[begin:]:
                if not lets(constraint.mask(), token):
                    break
                constraint.accept(token)
                passed += 1
                if token in tokenizer.stop_tokens:
                    passed = len(tokens) - begin
                    break
            if passed == len(tokens) - begin:
                ways.append(choice)
                break
            if choice is ToolChoice.AUTO:
                break
    return {0: "no", 1: "forced" if ToolChoice.REQUIRED in ways else "free", 2: "yes"}[len(ways)]


def _pieces(codec: TemplateCodec, items: Sequence[Item]) -> str:
    """Whether a history that is rendered item by item is the one that is rendered at once."""
    try:
        whole = codec.suffix([], items, TOOLS, ended=False).items
        for place in range(1, len(items)):
            (alone,) = codec.suffix(items[:place], [items[place]], TOOLS, ended=False).items
            if alone != whole[place]:
                last = "" if place + 1 < len(items) else " at the end"
                return (
                    f"a turn {'of the model' if isinstance(items[place], AssistantItem) else 'of others'} differs{last}"
                )
    except TemplateFailed as error:
        return f"refused: {str(error)[:60]}"
    return "yes"


def _renders(codec: TemplateCodec, tried: bool) -> str:
    if not tried:
        return ""
    if codec.looks_back is not None:
        return f"whole: {codec.looks_back}"
    return "new"


def table() -> str:
    """The table, with a row for each template."""
    head = ("template", "format", "a call read back", "several", "results", "held as written", "piecewise", "renders")
    rows = [capability(name, text).row for name, text in templates().items()]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, ""])


if __name__ == "__main__":
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + table() + END + after)
