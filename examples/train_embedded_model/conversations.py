"""Whole conversations: a list of tools, and turns of many kinds over it."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from train_embedded_model import kinds as world
from train_embedded_model.builtins import SPECS, Builtins, Task
from train_embedded_model.phrases import phrases, split, table
from train_embedded_model.pools import Pools, Value
from train_embedded_model.rewording import reworded
from train_embedded_model.roles import invented

Call = tuple[str, dict[str, Any]]

IDENTITY = "I am Tenuto's built-in model: small, but I can call tools."
NO_TOOL = "Sorry, I have no tool for that."
NO_TOOLS_AT_ALL = "I can talk with you, but I have no tools here."
_MOST_LINES = 6
"""An answer repeats so many lines of a result."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `ability` says what an assistant's message shows: by it accuracy is counted."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    ability: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system text, tools as a request lists them, and messages."""

    system: str
    tools: tuple[dict[str, Any], ...]
    messages: tuple[Message, ...]


def conversation(
    rng: random.Random, *, test: bool = False, turns: int | None = None, most_tools: int = 12, boxed: bool = False
) -> Conversation:
    """A conversation for training, or one of what is held out.

    turns: how many requests it has. boxed: over the tools of a server as it comes out of the box, and at most a few.
    """
    talk = _Talk(rng, test=test, most_tools=most_tools, boxed=boxed)
    return talk.whole(turns or rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 9)))


def errands(rng: random.Random, *, boxed: bool = False) -> Conversation:
    """Nothing but choosing: many requests over one list, each answered by its calls alone, without their results.

    A list is read once for all of them, so that a token of these teaches several times as much about choosing.
    """
    return _Talk(rng, test=False, most_tools=12, boxed=boxed, bare=True).whole(rng.choice((3, 4, 5, 6, 8)))


def assignments(rng: random.Random) -> Conversation:
    """Errands for one to three tools that nobody wrote: which value is for which parameter, and what is not told."""
    return _Talk(rng, test=False, most_tools=3, bare=True, invented=1.0).whole(rng.choice((3, 4, 5, 6, 8)))


@dataclass(slots=True)
class _Fact:
    asks: Sequence[str]
    answer: str


@dataclass(slots=True)
class _Talk:
    rng: random.Random
    test: bool
    most_tools: int
    boxed: bool = False
    bare: bool = False
    """Calls get no results, and so no answers."""
    invented: float = 0.2
    """The share of tools that nobody wrote; with all of them the built-in ones are not there."""
    pools: Pools = field(init=False)
    builtins: Builtins = field(init=False)
    tools: list[world.Tool] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    rivals: bool = False
    """Whether there are tools that do what the built-in ones do. They are never beside those."""
    names: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    facts: dict[str, _Fact] = field(default_factory=dict)
    topic: str = ""

    def __post_init__(self) -> None:
        self.pools = Pools(self.rng, test=self.test)
        self.builtins = Builtins(self.pools)

    def whole(self, turns: int) -> Conversation:
        tools = self._choose_tools()
        texts = phrases("talk", "system", "texts", test=self.test)
        system = self.rng.choice(texts) if self.rng.random() < 0.55 else ""
        for _ in range(turns):
            self._turn()
        return Conversation(system, tuple(tools), tuple(self.messages))

    # The tools

    def _choose_tools(self) -> list[dict[str, Any]]:
        rng = self.rng
        shape = 0.0 if self.boxed else rng.random()
        others = 0
        if self.invented == 1:
            others = rng.choice((1, 1, 2, 3))
        elif shape < 0.44:  # a server as it comes out of the box, sometimes with a few more tools
            self.own = set(SPECS)
            others = rng.choice((0, 0, 0, 1, 2, 3, 4))
        elif shape < 0.56:
            self.own = {name for name in SPECS if rng.random() < 0.5}
            others = rng.choice((0, 1, 2, 3, 4))
        elif shape < 0.96:
            others = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12))
        if self.most_tools < len(SPECS):
            self.own = set(rng.sample(sorted(self.own), min(len(self.own), self.most_tools)))
        others = min(others, self.most_tools)
        specs = [SPECS[name] for name in SPECS if name in self.own]
        specs = [*self._more_tools(others), *specs] if rng.random() < 0.3 else [*specs, *self._more_tools(others)]
        if rng.random() < 0.3:
            rng.shuffle(specs)
        self.names = [spec["function"]["name"] for spec in specs]
        return specs

    def _more_tools(self, count: int) -> list[dict[str, Any]]:
        rng = self.rng
        known = world.kinds(test=self.test)
        if not self.test and rng.random() < 0.4:
            # As a real server's: all of one subject, so that fine differences count.
            subject = rng.choice(known).subject
            known = tuple(kind for kind in known if kind.subject == subject)
        chosen = rng.sample(known, min(count, len(known)))
        if not self.test and not self.own and rng.random() < 0.12:
            # Often enough that telling the time is not taken for the built-in clock's privilege.
            rivals = world.kinds(test=False, like_builtins=True)
            alike = rng.sample(rivals, min(count, rng.choice((1, 2, 3))))
            chosen = [*chosen[: count - len(alike)], *alike]
            rng.shuffle(chosen)
            self.rivals = bool(alike)
        prefixes = self._prefixes()
        for kind in map(self._perhaps_another, chosen):
            taken = [tool.name for tool in self.tools]
            self.tools.append(world.make_tool(self.pools, kind, rng.choice(prefixes), taken))
        return [tool.spec for tool in self.tools]

    def _perhaps_another(self, kind: world.Kind) -> world.Kind:
        """For training alone, one with words exchanged or one that nobody wrote: what is held out stays as it is."""
        if self.test:
            return kind
        if self.rng.random() < self.invented:
            return invented(self.pools)
        return reworded(self.pools, kind) if self.rng.random() < 0.4 else kind

    def _prefixes(self) -> list[str]:
        """Client tools have plain names, those of MCP servers have the server's before them."""
        rng = self.rng
        if rng.random() < 0.4:
            return [""]
        count = rng.choice((1, 1, 2, 3))
        labels = [self.pools.pick(rng.choice(("noun", "word", "tag"))).replace(" ", "_") for _ in range(count)]
        # Some servers begin the names of their tools with their own, too.
        return [f"{label}__" + (f"{label}_" if rng.random() < 0.2 else "") for label in labels]

    # The turns

    def _turn(self) -> None:
        rng = self.rng
        can_call = bool(self.own or self.tools)
        turns: list[tuple[Callable[[], None], float]] = [
            (self._greet, 7 if not self.messages else 3),
            (self._identity, 2),
            (self._capability, 4),
            (self._no_tool, 14),
            (self._tell, 9),
            (self._recall, 40 if self.facts else 0),
            (self._single, 55 if can_call else 0),
            (self._two, 20 if can_call else 0),
            (self._one_for_several, 3 if self.tools else 0),
            (self._two_rounds, 24 if can_call and not self.bare else 0),
        ]
        rng.choices([turn for turn, _ in turns], [weight for _, weight in turns])[0]()

    def _say(self, name: str, entry: str = "asks") -> str:
        text: str = self.rng.choice(phrases("talk", name, entry, test=self.test))
        return text

    def _user(self, text: str) -> None:
        self.messages.append(Message("user", text))

    def _answer(self, text: str, ability: str) -> None:
        self.messages.append(Message("assistant", text, ability=ability))

    def _dressed(self, text: str, *tasks: Task) -> str:
        """With the small words around a request, none of which could be taken for the end of a value."""
        rng = self.rng
        values = [value for task in tasks for value in _texts(task.call[1])]
        if rng.random() < 0.14:
            opener = self._say("openers", "texts")
            text = opener + (_lower(text, values) if rng.random() < 0.5 and not opener.endswith(". ") else text)
        if rng.random() < 0.08 and not text.endswith(tuple(values)):
            text += self._say("closers", "texts")
        return text

    def _greet(self) -> None:
        pairs = split(tuple(map(tuple, table("talk")["greet"]["pairs"])), test=self.test)
        asked, answer = self.rng.choice(pairs)
        self._user(asked)
        self._answer(answer, "talk")

    def _identity(self) -> None:
        self._user(self._say("identity"))
        self._answer(IDENTITY, "talk")

    def _capability(self) -> None:
        self._user(self._say("capability"))
        known = f"I can use these tools: {', '.join(self.names)}."
        self._answer(known if self.names else NO_TOOLS_AT_ALL, "capability")

    def _no_tool(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            text = self._say("no_tool").format_map(_Drawn(self.pools))
        elif self.own or self.rivals or rng.random() < 0.65:
            there = {tool.kind.id for tool in self.tools}
            absent = [kind for kind in world.kinds(test=self.test) if kind.id not in there]
            text = _asked(self.pools, self._perhaps_another(rng.choice(absent)))
        else:
            text = self.builtins.any_of(set(SPECS))().text
        self._user(self._dressed(text))
        self._answer(NO_TOOL, "no_tool")

    # What the user has said

    def _tell(self) -> None:
        rng = self.rng
        fact = rng.choice(table("talk")["fact"])
        x = self.pools.text(fact["value"])
        self._user(rng.choice(split(tuple(fact["tells"]), test=self.test)).format(x=x))
        self._answer(rng.choice(fact["told"][:1]).format(x=x), "told")
        self.facts[fact["key"]] = _Fact(split(tuple(fact["asks"]), test=self.test), fact["answer"].format(x=x))

    def _recall(self) -> None:
        fact = self.facts[self.rng.choice(tuple(self.facts))]
        self._user(self.rng.choice(fact.asks))
        self._answer(fact.answer, "recall")

    # Calls

    def _task(self, *, short: bool = False) -> Task:
        """A request for one of the tools that are there."""
        rng = self.rng
        if self.own and (not self.tools or rng.random() < 0.55):
            if self.topic == "now" and "clock__now" in self.own and rng.random() < 0.25:
                return self.builtins.now(follows=True)
            if self.topic == "calculator" and "calculator__evaluate" in self.own and rng.random() < 0.15:
                return self.builtins.calculate_next()
            return self.builtins.any_of(self.own)()
        return self._foreign(world.request(self.pools, rng.choice(self.tools)), short=short)

    def _foreign(self, request: world.Request, *, short: bool = False) -> Task:
        result = world.result(self.pools, request)
        if not short:
            result = self._longer(request, result)
        return Task(request.text, request.call, result, _reported(result), "tool")

    def _longer(self, request: world.Request, result: str) -> str:
        """Several lines now and then, as listings are."""
        rng = self.rng
        if rng.random() > 0.14:
            return result
        lines = [world.result(self.pools, request) for _ in range(rng.choice((2, 2, 3, 3, 4, 5, 6, 9)))]
        if rng.random() < 0.4:
            lines = [f"- {line}" for line in lines]
        return "\n".join(lines)

    def _single(self) -> None:
        task = self._task()
        self._user(self._dressed(task.text, task))
        self._call([task], task.ability)
        if self.bare:
            return
        chance = self.rng.random()
        if chance < 0.2:
            self._fails(task)
        elif chance < 0.32:
            self._denied(task)
        else:
            self._results([task])
            self._answer(task.answer, "answer")
            self.topic = task.topic

    def _call(self, tasks: Sequence[Task], ability: str) -> None:
        self.messages.append(Message("assistant", calls=tuple(task.call for task in tasks), ability=ability))

    def _results(self, tasks: Sequence[Task]) -> None:
        self.messages += [Message("tool", task.result) for task in tasks]

    def _fails(self, task: Task) -> None:
        error, text = self._error()
        self.messages.append(Message("tool", text))
        self._answer(_failed(task, error), "error")
        if self.rng.random() < 0.25:
            self._user(self._say("retry"))
            self._call([task], "retry")
            self._results([task])
            self._answer(task.answer, "answer")

    def _error(self) -> tuple[str, str]:
        error = self._say("errors", "texts").format_map(_Drawn(self.pools))
        wrapper = "Error: {e}" if self.rng.random() < 0.4 else self._say("errors", "wrappers")
        return error, wrapper.format(e=error)

    def _denied(self, task: Task) -> None:
        rng, name = self.rng, task.call[0]
        kind = rng.random()
        why = ""
        if kind < 0.3:
            text = "The user denied this tool call."
        elif kind < 0.5:
            why = self._say("denials", "why")
            text = f"The user denied this tool call. {why}"
        elif kind < 0.6:
            text = f"The tool call {name} was denied: {rng.choice(_POLICIES)}"
        elif kind < 0.85:
            text = self._say("denials", "texts")
        else:
            why = self._say("denials", "why")
            text = self._say("denials", "reasons").format(why=why)
        self.messages.append(Message("tool", text))
        self._answer(f"I did not run {name}: the call was denied" + (f" ({why})." if why else "."), "denial")

    def _two(self) -> None:
        """Two requests in one message, or three."""
        rng = self.rng
        tasks = [self._task(short=True) for _ in range(3 if rng.random() < 0.12 else 2)]
        if len(tasks) == 3:
            texts = [task.text.rstrip(".?! ") for task in tasks]
            text = rng.choice(("{0}, {1} and {2}", "{0}; {1}; {2}", "1. {0}\n2. {1}\n3. {2}", "{0}, {1}, {2}")).format(
                *texts
            )
        elif rng.random() < 0.5:
            first, second = tasks[0].text.rstrip(".?! "), _lower(tasks[1].text, _texts(tasks[1].call[1]))
            text = self._compose("two_lower").format(first=first, second=second)
        else:
            text = self._compose("two").format(first=_ended(tasks[0].text), second=tasks[1].text)
        self._user(self._dressed(text, *tasks))
        self._call(tasks, "parallel")
        if self.bare:
            return
        if rng.random() < 0.07:
            error, told = self._error()
            self.messages += [Message("tool", tasks[0].result), Message("tool", told)]
            more = [task.result for task in tasks[2:]]
            self.messages += [Message("tool", result) for result in more]
            parts = [tasks[0].answer, _failed(tasks[1], error), *(task.answer for task in tasks[2:])]
        else:
            self._results(tasks)
            parts = [task.answer for task in tasks]
        self._answer(" ".join(parts), "answer_parallel")

    def _compose(self, name: str) -> str:
        text: str = self.rng.choice(phrases("builtin", "compose", name, test=self.test))
        return text

    def _one_for_several(self) -> None:
        """One tool for two or three values: the same request, its last value said several times."""
        rng = self.rng
        tool = rng.choice(self.tools)
        simple = [p for p in tool.kind.params if p.required and p.type == "string" and p.pool in _SEVERAL]
        if not simple:
            return self._single()
        param = rng.choice(simple)
        several = [self.pools.draw(param.pool) for _ in range(rng.choice((2, 2, 3)))]
        if len({value.spoken for value in several}) < len(several):
            return self._single()
        spoken = ", ".join(value.spoken for value in several[:-1]) + rng.choice((" and ", " and also ", " and then "))
        request = world.request(self.pools, tool, {param.key: Value(several[0].json, spoken + several[-1].spoken)})
        tasks = [
            self._foreign(world.Request(request.text, tool, request.values | {param.key: value.json}), short=True)
            for value in several
        ]
        self._user(self._dressed(request.text, *tasks))
        self._call(tasks, "parallel")
        if not self.bare:
            self._results(tasks)
            self._answer(" ".join(task.answer for task in tasks), "answer_parallel")
        return None

    def _two_rounds(self) -> None:
        """A request whose second call needs the first one's result."""
        rng = self.rng
        first = self._task(short=True)
        if not _can_be_passed_on(first.result):
            return self._single()
        receivers = [(tool, p) for tool in self.tools for p in tool.kind.params if _receives(tool, p)]
        if "notes__put" in self.own and (not receivers or rng.random() < 0.6):
            if first.call[0].startswith("notes__"):
                return self._single()
            key = self.builtins.key()
            task = _lower(first.text, _texts(first.call[1])).rstrip(".?! ")
            text = self._compose("then_save").format(task=task, key=key)
            second = self.builtins.keep(key, first.result)
        elif receivers:
            tool, param = rng.choice(receivers)
            it = rng.choice(("the result", "the result", "it", "that", "the answer", "what you get", "this"))
            request = world.request(self.pools, tool, {param.key: Value(first.result, it)})
            if param.key not in request.values:
                return self._single()
            second = self._foreign(request, short=True)
            link = rng.choice(
                (" and then ", ", then ", " and ", ", and then ", ". Then ", ". After that, ", " and with that: ")
            )
            text = first.text.rstrip(".?! ") + link + _lower(request.text, _texts(second.call[1]))
        else:
            return self._single()
        self._user(self._dressed(text, first, second))
        self._call([first], "first_of_two")
        if rng.random() < 0.06:
            return self._fails(first)
        self._results([first])
        self._call([second], "second_of_two")
        self._results([second])
        self._answer(f"{first.answer} {second.answer}", "answer_two_rounds")
        return None


_SEVERAL = frozenset((
    "city", "country", "file", "path", "first_name", "person", "email", "word", "id", "ticker", "url", "domain", "food",
    "animal", "plant", "language", "folder", "code", "team", "sport", "currency",
))  # fmt: skip
_TAKES_RESULTS = frozenset((
    "phrase", "sentence", "title", "query", "word", "path", "file", "id", "code", "noun", "topic", "url", "product",
    "hash",
))  # fmt: skip
_POLICIES = (
    "its server's entry says deny.",
    "--agent-permission says deny.",
    "the request's agent_permission is deny.",
    "it needs permission and nobody can be asked. To allow it, set "
    '"permission" in its server\'s entry of the MCP configuration, or start with --agent-permission auto or ask.',
)


def _can_be_passed_on(result: str) -> bool:
    """Whether a result makes a plain argument: nothing in it needs an escape."""
    return len(result) < 120 and not any(character in result for character in '"\\\n{[')


def _receives(tool: world.Tool, param: world.Param) -> bool:
    return param.required and param.type == "string" and param.pool in _TAKES_RESULTS and param.key not in tool.inner


class _Drawn(dict[str, str]):
    """Places of a phrase, filled from the pools."""

    def __init__(self, pools: Pools) -> None:
        super().__init__()
        self._pools = pools

    def __missing__(self, pool: str) -> str:
        return self._pools.text(pool)


def _asked(pools: Pools, kind: world.Kind) -> str:
    return world.request(pools, world.make_tool(pools, kind, "", [])).text


def _reported(result: str) -> str:
    """How a foreign tool's result is told: as it is, or its first lines."""
    lines = result.splitlines()
    if len(lines) > _MOST_LINES:
        result = "\n".join([*lines[:_MOST_LINES], "..."])
    return f"Result: {result}"


def _failed(task: Task, error: str) -> str:
    return f"Sorry, {task.call[0]} failed: {error}"


def _texts(arguments: Any) -> list[str]:
    """The texts among arguments, and in what these hold."""
    if isinstance(arguments, str):
        return [arguments] if arguments else []
    held = arguments.values() if isinstance(arguments, dict) else arguments if isinstance(arguments, list) else ()
    return [text for each in held for text in _texts(each)]


def _lower(text: str, values: Sequence[str]) -> str:
    """As the middle of a sentence, unless it begins with a value."""
    plain = text[1:2].islower() or text[1:2] in " '"
    return text[:1].lower() + text[1:] if plain and not text.startswith(tuple(values)) else text


def _ended(text: str) -> str:
    return text if text[-1:] in ".?!" else text + "."


def to_text(call: Call) -> str:
    """A call as the Hermes format writes it."""
    name, arguments = call
    named = json.dumps(name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {named}, "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'


__all__ = ["IDENTITY", "NO_TOOL", "NO_TOOLS_AT_ALL", "Conversation", "Message", "conversation", "errands", "to_text"]
