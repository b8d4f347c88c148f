"""Read the same answers with Tenuto's parsers and with llama.cpp's, and tell for each family where they differ.

    bench/formats/build.sh && python -m bench.formats.compare [FAMILY ...] [--verbose]

The answers are in answers/, a file a family: from llama.cpp's own tests, from what the families' templates write of a
turn, and broken on purpose. A difference that is meant has a reason, a key of the table in docs/parsers.md; the exit
code is 1 if there is one without a reason, or a reason without a difference. White space at the ends of texts and the
ids of calls are not compared: Tenuto shows neither.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.formats import format_of
from tenuto.pipelines.formats.base import Surroundings
from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model
from tenuto.pipelines.turns import CallBroken, CallFinished, ReasoningDelta, TextDelta
from tenuto.pipelines.vocabulary import Vocabulary, vocabulary_of
from tenuto.sessions.items import ToolSpec
from tests.pipelines.special_tokens import SPECIALS
from tests.pipelines.tiny_chat import tiny_chat

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = HERE.parent / "peers"
TOOLS: dict[str, Any] = json.loads((HERE / "tools.json").read_text())
REASONS = ROOT / "docs" / "parsers.md"


@dataclass(frozen=True)
class Said:
    """What a parser made of an answer; `fault` in words where it found something wrong."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    fault: str = ""

    def same(self, other: "Said") -> bool:
        """Whether both would be told to a client in the same way."""
        mine, others = ((s.text.strip(), s.reasoning.strip(), json.dumps(s.calls)) for s in (self, other))
        return mine == others and bool(self.fault) == bool(other.fault)


def families() -> list[str]:
    return sorted(path.stem for path in (HERE / "answers").glob("*.json"))


def answers(family: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((HERE / "answers" / f"{family}.json").read_text())
    return loaded


def reasons() -> set[str]:
    """The keys of the page's table: the first cell of each row, in backticks."""
    return set(re.findall(r"^\| `([^`]+)` \|", REASONS.read_text(), re.MULTILINE))


def judged(program: Path, asked: list[dict[str, Any]], templates: Path) -> list[dict[str, Any]]:
    """What llama.cpp says of each answer."""
    lines = []
    for answer in asked:
        # As in llama.cpp's tests, without the texts of the special tokens: with them it takes the end of the sequence
        # for a part of some families' calls, and refuses those of Mistral Small 3.2.
        line = {
            "template": template(templates, answer["template"]),
            "tools": [{"type": "function", "function": TOOLS[name]} for name in answer["tools"]],
            "text": answer["text"],
            "parallel": answer["parallel"],
            "kwargs": {} if answer["thinking"] else {"enable_thinking": False},
        }
        lines.append(json.dumps(line))
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def theirs(verdict: dict[str, Any]) -> Said:
    if "error" in verdict:
        return Said("", "", (), verdict["error"])
    message = verdict["message"]
    calls = tuple((call["name"], value_of(call["arguments"])) for call in message["tool_calls"])
    return Said(message["content"], message["reasoning_content"], calls)


def ours(answer: dict[str, Any], opening: str, templates: Path) -> tuple[str, Said]:
    """The name of our format, and what it makes of an answer in a turn that was opened so."""
    tokenizer, vocabulary, chat = family_of(templates, answer["template"])
    form = format_of(Surroundings(chat.text, opening, chat.call(), vocabulary, knows_tools=chat.knows_tools)).form
    tools = [ToolSpec(TOOLS[name]["name"], "", TOOLS[name].get("parameters", {})) for name in answer["tools"]]
    parser = form.parser(calls=bool(tools), tools=tools)
    tokens = [*tokenizer.template_tokens(answer["text"]), min(vocabulary.stops)]
    events = [event for token in tokens for event in parser.push(token)] + parser.finish()
    said, calls, faults = {TextDelta: "", ReasoningDelta: ""}, [], []
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta():
                said[type(event)] += event.text
            case CallFinished():
                calls.append((event.name, value_of(event.arguments)))
            case CallBroken():
                faults.append(event.reason)
    return form.name, Said(said[TextDelta], said[ReasoningDelta], tuple(calls), "; ".join(faults))


@cache
def template(templates: Path, name: str) -> str:
    return (templates / f"{name}.jinja").read_text()


@cache
def family_of(templates: Path, name: str) -> tuple[LlamaTokenizer, Vocabulary, ChatTemplate]:
    text = template(templates, name)
    with tempfile.TemporaryDirectory() as folder:
        model = Model(tiny_chat(Path(folder) / "tiny.gguf", text, SPECIALS[name]), vocabulary_only=True)
    tokenizer = LlamaTokenizer(model)
    pieces = tuple(tokenizer.piece(token) for token in range(tokenizer.vocabulary))
    vocabulary = vocabulary_of(pieces, tokenizer.stop_tokens, tokenizer.control_tokens, tokenizer.user_defined)
    ends = [pieces[token].decode() for token in sorted(tokenizer.stop_tokens)]
    return tokenizer, vocabulary, ChatTemplate(text, tokenizer.special_texts, ends)


def value_of(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def show(answer: dict[str, Any], verdict: dict[str, Any], mine: Said) -> None:
    print(f"    {answer['template']}, {answer['from']}: {answer['text']!r}")
    print(f"      opened with {verdict.get('opening', '')!r}; tools: {', '.join(answer['tools']) or 'none'}")
    print(f"      llama.cpp: {theirs(verdict)}\n      Tenuto:    {mine}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=families())
    parser.add_argument("--judge", type=Path, default=PEERS / "judge" / "judge")
    parser.add_argument("--templates", type=Path, default=PEERS / "llama.cpp" / "models" / "templates")
    parser.add_argument("--verbose", action="store_true", help="show the differences that have a reason too")
    chosen = parser.parse_args()
    known, bad, total = reasons(), 0, Counter[str]()
    print(f"{'family':16} {'answers':>7} {'equal':>6} {'explained':>9} {'unexplained':>11}  formats")
    for family in chosen.families:
        asked = answers(family)
        counted, formats, shown = Counter[str](), set[str](), []
        for answer, verdict in zip(asked, judged(chosen.judge, asked, chosen.templates), strict=True):
            name, mine = ours(answer, verdict.get("opening", ""), chosen.templates)
            formats.add(name)
            reason, equal = answer.get("differs"), mine.same(theirs(verdict))
            kind = (
                "equal" if equal and reason is None else "explained" if not equal and reason in known else "unexplained"
            )
            counted[kind] += 1
            if kind == "unexplained" or (kind == "explained" and chosen.verbose):
                shown.append((answer, verdict, mine))
        figures = (len(asked), counted["equal"], counted["explained"], counted["unexplained"])
        print(f"{family:16} {figures[0]:7} {figures[1]:6} {figures[2]:9} {figures[3]:11}  {', '.join(sorted(formats))}")
        for each in shown:
            show(*each)
        total += counted
        bad += counted["unexplained"]
    print(f"{'all':16} {total.total():7} {total['equal']:6} {total['explained']:9} {total['unexplained']:11}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
