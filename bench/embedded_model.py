"""How well the embedded model does what it is for: a table by ability, asked through the server as users ask it.

Every turn is asked by itself, with the true conversation before it, at temperature 0 and with strict tools. Tools,
their parameters, phrasings and values are held out from training. Three sets were written by hand: two of questions
to the built-in tools (of the first, some failures were looked at while the world grew; the second is fresh), and one
of questions to the real tools of five MCP servers.

    .venv/bin/python bench/embedded_model.py --cases 300
    .venv/bin/python bench/embedded_model.py --model some.gguf --only calculator clock --show 5
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tenuto.tools.builtin.arithmetic import CannotEvaluate, evaluate

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from train_embedded_model.builtins import SPECS
from train_embedded_model.conversations import NO_TOOL, Call, Conversation, Message, conversation

QUESTIONS = Path(__file__).parent / "questions"
READY = "tenuto ready on "
AT_ONCE = 8
PATIENCE_S = 120.0
"""For one answer; one that takes longer is counted as wrong."""
CALLS = ("calculator", "clock", "notes", "tool", "parallel", "first_of_two", "second_of_two", "retry")
ANSWERS = ("answer", "answer_parallel", "answer_two_rounds")
ABILITIES = (*CALLS, *ANSWERS, "error", "denial", "no_tool", "recall", "told", "talk", "capability")


@dataclass(frozen=True, slots=True)
class Case:
    """A turn to be asked: what stands before it, and what is right."""

    ability: str
    system: str
    tools: Sequence[dict[str, Any]]
    before: Sequence[Message]
    right: Message
    also: Sequence[tuple[Call, ...]] = ()
    wording: str = ""
    """Of a request for a tool never seen: whether it can be told by the words of the list."""

    @property
    def abilities(self) -> list[str]:
        """The lines of the table that it counts for."""
        return [self.ability, f"{self.ability}, {self.wording}"] if self.wording else [self.ability]


@dataclass(slots=True)
class Tally:
    """Of one ability: how many were asked, how many were right, and what went wrong."""

    asked: int = 0
    right: int = 0
    named: int = 0
    wrong: list[str] = field(default_factory=list)


# The cases


def generated(count: int, abilities: Sequence[str]) -> Iterator[Case]:
    """So many held-out cases of each ability."""
    rng = random.Random("the evaluation through the server")
    left = dict.fromkeys(abilities, count)
    while any(left.values()):
        talk = conversation(rng, test=True)
        for place, message in enumerate(talk.messages):
            if left.get(message.ability):
                left[message.ability] -= 1
                wording = _wording(talk, place) if message.ability == "tool" else ""
                before = talk.messages[:place]
                yield Case(message.ability, talk.system, talk.tools, before, message, wording=wording)


def _wording(talk: Conversation, place: int) -> str:
    """Whether the request has more words of the tool that it means, of its name and description, than of any other."""
    asked = _stems(talk.messages[place - 1].text)
    (name, _), *_ = talk.messages[place].calls
    shared = {
        tool["function"]["name"]: len(asked & _stems(f"{tool['function']['name']} {tool['function']['description']}"))
        for tool in talk.tools
    }
    meant = shared.pop(name)
    return "in the list's words" if meant > max(shared.values(), default=0) else "in other words"


def _stems(text: str) -> set[str]:
    """The words of a text by their first five letters, but for short ones."""
    return {word[:5] for word in re.findall("[a-z]{4,}", re.sub("(?<=[a-z])(?=[A-Z])", " ", text).lower())}


def recall_after(count: int, turns: int) -> Iterator[Case]:
    """Questions after what the user said so many turns ago."""
    rng = random.Random(f"recall after {turns} turns")
    while count:
        talk = conversation(rng, test=True, turns=turns + 4)
        told = [place for place, message in enumerate(talk.messages) if message.ability == "told"]
        for place, message in enumerate(talk.messages):
            before = [m for m in talk.messages[:place] if m.role == "user"]
            if message.ability == "recall" and told and count and len(before) >= turns:
                count -= 1
                yield Case(f"recall, {turns} turns", talk.system, talk.tools, talk.messages[:place], message)


def long_sessions(count: int) -> Iterator[Case]:
    """Calls and answers after 20 requests in one session."""
    rng = random.Random("long sessions")
    while count:
        talk = conversation(rng, test=True, turns=21, most_tools=8)
        users = [place for place, message in enumerate(talk.messages) if message.role == "user"]
        if len(users) <= 20 or _size(talk) > 12_000:
            continue
        right = talk.messages[users[20] + 1]
        count -= 1
        yield Case("after 20 requests", talk.system, talk.tools, talk.messages[: users[20] + 1], right)


def _size(talk: Conversation) -> int:
    return sum(len(message.text) + len(json.dumps(message.calls)) for message in talk.messages)


def by_hand() -> Iterator[Case]:
    """The questions written by hand."""
    for file, ability in (("questions", "built-in tools"), ("fresh_questions", "built-in tools, fresh")):
        for entry in tomllib.loads((QUESTIONS / f"{file}.toml").read_text())["question"]:
            yield _question(entry, f"by hand: {ability}", list(SPECS.values()))
    lists = json.loads((QUESTIONS / "real_servers.json").read_text())
    for entry in tomllib.loads((QUESTIONS / "real_questions.toml").read_text())["question"]:
        server = entry["server"]
        tools = [_spec(f"{server}__{tool['name']}", tool) for tool in lists[server]]
        yield _question(entry, f"by hand: server {server}", tools)


def _question(entry: dict[str, Any], ability: str, tools: Sequence[dict[str, Any]]) -> Case:
    calls, *also = (
        tuple((call["name"], call["arguments"]) for call in calls) for calls in (entry["calls"], *entry.get("also", ()))
    )
    user = Message("user", entry["text"])
    return Case(ability, "", tools, [user], Message("assistant", calls=calls, ability=ability), also)


def _spec(name: str, tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": tool.get("description") or "", "parameters": tool["inputSchema"]}
    return {"type": "function", "function": function}


# Asking


def body(case: Case) -> dict[str, Any]:
    """The request: the tools of the server by their labels, all others as the client's own, nothing called or kept."""
    names = [tool["function"]["name"] for tool in case.tools]
    own: dict[str, list[str]] = {}
    for name in names:
        if name in SPECS:
            label, _, tool = name.partition("__")
            own.setdefault(label, []).append(tool)
    tools: list[dict[str, Any]] = [
        {"type": "mcp", "server_label": label, "allowed_tools": tools} for label, tools in own.items()
    ]
    tools += [tool for tool in case.tools if tool["function"]["name"] not in SPECS]
    made: dict[str, Any] = {"messages": _messages(case), "temperature": 0, "max_tokens": 400}
    made |= {"max_tool_rounds": 0, "match": "off"}
    # An empty list would mean the server's default tools.
    return made | ({"tools": tools} if tools else {"tool_choice": "none"})


def _messages(case: Case) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"role": "system", "content": case.system}] if case.system else []
    open_calls: list[str] = []
    number = 0
    for message in case.before:
        match message.role:
            case "user":
                made.append({"role": "user", "content": message.text})
            case "assistant":
                turn: dict[str, Any] = {"role": "assistant", "content": message.text or None}
                calls = []
                for name, arguments in message.calls:
                    number += 1
                    open_calls.append(f"call_{number}")
                    text = json.dumps(arguments, ensure_ascii=False)
                    calls.append(
                        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}}
                    )
                made.append(turn | ({"tool_calls": calls} if calls else {}))
            case "tool":
                made.append({"role": "tool", "tool_call_id": open_calls.pop(0), "content": message.text})
    return made


async def ask(client: httpx.AsyncClient, case: Case) -> Message:
    """What the model says in that turn."""
    try:
        response = await client.post("/v1/chat/completions", json=body(case))
    except httpx.TimeoutException:
        return Message("assistant", f"no answer within {PATIENCE_S:g} s")
    if response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded":
        return Message("assistant", "the conversation is too long for this model")
    if response.status_code != 200:
        raise SystemExit(f"the server answered {response.status_code}: {response.text[:500]}")
    answer = response.json()
    said = answer["choices"][0]["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in said.get("tool_calls") or ()]
    calls += [(call["name"], call["arguments"]) for call in answer.get("agentic_tool_calls") or ()]
    read = tuple((name, json.loads(text) if isinstance(text, str) else text) for name, text in calls)
    return Message("assistant", said.get("content") or "", read)


# Judging


def is_right(case: Case, said: Message) -> bool:
    """Whether the turn is right: calls in name and every argument, answers by what they have to contain."""
    if case.right.calls:
        return any(same_calls(said.calls, right) for right in (case.right.calls, *case.also))
    if said.calls:
        return False
    match case.right.ability:
        case "answer" | "answer_parallel" | "answer_two_rounds":
            return all(plain(result) in plain(said.text) for result in _results(case))
        case "error" | "denial":
            # Whether more of the tool's words is said, too, is no matter.
            return plain(case.right.text).removesuffix(".") in plain(said.text)
        case "no_tool":
            return said.text == NO_TOOL
        case _:
            return plain(said.text) == plain(case.right.text)


def _results(case: Case) -> list[str]:
    """What the answer has to contain: the results of the turn, long ones to their sixth line; none of a saved note."""
    results: list[str] = []
    for message in reversed(case.before):
        if message.role == "user":
            break
        if message.role == "tool" and message.text not in ("saved", "no notes"):
            results.append("\n".join(message.text.splitlines()[:6]))
    return [result for result in results if plain(result) in plain(case.right.text)]


def same_calls(said: Sequence[Call], right: Sequence[Call]) -> bool:
    """Names and arguments as JSON values; an expression by its value."""
    return len(said) == len(right) and all(
        name == wanted and (arguments == expected or _same_value(name, arguments, expected))
        for (name, arguments), (wanted, expected) in zip(said, right, strict=True)
    )


def _same_value(name: str, arguments: dict[str, Any], expected: dict[str, Any]) -> bool:
    if name != "calculator__evaluate":
        return False
    try:
        return evaluate(arguments["expression"]) == evaluate(expected["expression"])
    except (CannotEvaluate, KeyError):
        return False


def plain(text: str) -> str:
    """Without differences that nobody sees."""
    return re.sub(r"\s+", " ", text).strip()


# The server


@contextmanager
def served(model: str, folder: Path) -> Iterator[str]:
    """The address of a server of its own, started as users start it."""
    command = [sys.executable, "-m", "tenuto", "serve", "--model", model, "--port", "0", "--data-dir", str(folder)]
    # One thread: the small model gains nothing by more, and waits for them where the machine is busy.
    process = subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(READY):
                yield line.removeprefix(READY).strip()
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(30)


async def judged(url: str, cases: Iterator[Case]) -> dict[str, Tally]:
    """Ask all cases, some at a time."""
    tallies: dict[str, Tally] = {}

    async def work(client: httpx.AsyncClient) -> None:
        for case in cases:
            said = await ask(client, case)
            right = is_right(case, said)
            for ability in case.abilities:
                tally = tallies.setdefault(ability, Tally())
                tally.asked += 1
                tally.right += right
                tally.named += [name for name, _ in said.calls] == [name for name, _ in case.right.calls]
                if not right:
                    asked = case.before[-1].text
                    wanted = case.right.text or json.dumps(case.right.calls, ensure_ascii=False)
                    got = said.text or json.dumps(said.calls, ensure_ascii=False)
                    tally.wrong.append(f"{asked!r}\n    wanted {wanted}\n    got    {got}")

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(client))
    return tallies


def all_cases(count: int, only: Sequence[str]) -> Iterator[Case]:
    """Every case of the table, or those of the abilities that are named."""
    wanted = [ability for ability in ABILITIES if not only or ability in only]
    yield from generated(count, wanted)
    if not only or "recall" in only:
        yield from recall_after(count, 10)
    if not only or "long" in only:
        yield from long_sessions(count)
    if not only or "hand" in only:
        yield from by_hand()


def main() -> None:
    """Print the table; with --json, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--cases", type=int, default=300, help="of each generated ability")
    parser.add_argument("--only", nargs="*", default=(), help="abilities; `hand` and `long` are two")
    parser.add_argument("--show", type=int, default=0, help="so many wrong answers of each")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, served(given.model, Path(folder)) as url:
        tallies = asyncio.run(judged(url, all_cases(given.cases, given.only)))
    print(f"| {'ability':<24} | {'right':>6} | {'of':>4} | names |")
    print(f"|{'-' * 26}|{'-' * 7}:|{'-' * 5}:|------:|")
    for ability, tally in tallies.items():
        right, named = tally.right / tally.asked, tally.named / tally.asked
        print(f"| {ability:<24} | {right:>6.1%} | {tally.asked:>4} | {named:>5.0%} |")
    for ability, tally in tallies.items():
        for wrong in tally.wrong[: given.show]:
            print(f"{ability}: {wrong}")
    if given.json:
        facts = {ability: {"right": t.right, "of": t.asked} for ability, t in tallies.items()}
        given.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
