"""Whether a chat template writes new messages the same after a long past and after its stand-in: found out by trying.

A template is a program, so trying proves little by itself. What is tried is what programs over messages can see of a
past: how many there are, what kinds of turns, which words, in front of every kind of turn that can come last. Words and
numbers that could make a difference stand in the template, so they are tried too. Where anything differs, or cannot be
tried, the answer is that the template looks back, which costs time and is never wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jinja2 import nodes

from tenuto.errors import TemplateFailed
from tenuto.pipelines.stand_in import stand_in
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem

Suffix = Callable[[Sequence[Item], Sequence[Item], Sequence[ToolSpec]], object]
"""What a template writes for new items after a past, rendered whole; comparable. Raises TemplateFailed."""

MOST_COUNTED = 64
"""A template that names a greater number could count so many messages, more than are tried."""

MOST_NAMED = 256

_SYSTEM = SystemItem("Be brief.")
_TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
_SETTINGS: tuple[tuple[tuple[Item, ...], tuple[ToolSpec, ...]], ...] = (
    ((), ()),
    ((_SYSTEM,), (_TOOL,)),
    ((_SYSTEM,), ()),
    ((), (_TOOL, ToolSpec("ask", "", {"type": "object"}))),
)


@dataclass(frozen=True, slots=True)
class Named:
    """What a template names that a past could be compared with."""

    numbers: frozenset[int]
    words: tuple[str, ...]


def named(template: nodes.Template) -> Named:
    """The numbers and words among a template's expressions."""
    values = [constant.value for constant in template.find_all(nodes.Const)]
    numbers = frozenset(value for value in values if isinstance(value, int) and not isinstance(value, bool))
    return Named(numbers, tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value)))


def looks_back(suffix: Suffix, named: Named) -> str | None:
    """In words, what of a long past shows in new messages; None where nothing does, and so a stand-in will do."""
    counted = max(named.numbers, default=0)
    if counted > MOST_COUNTED or len(named.words) > MOST_NAMED:
        most = f"the number {counted}" if counted > MOST_COUNTED else f"{len(named.words)} words"
        return f"its chat template names {most}, more than can be tried"
    beside = _Beside(suffix)
    tried = 0
    for number, (what, past) in enumerate(_pasts(named)):
        for end, setting in _ways(number, past):
            differs = beside.differs(past, end, setting)
            if differs:
                return f"its chat template writes new messages differently after {what}"
            tried += differs is not None
    return None if tried >= len(_ENDS) else "its chat template takes no conversation of several turns"


def _ways(number: int, past: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """After this past, which ends are tried with which settings: a few after a long one, else all, in turn."""
    every = 1 if len(past) <= _SHORT else 3 if len(past) <= _LONG else 8
    for end in range(number % every, len(_ENDS), every):
        yield end, (number + end) % len(_SETTINGS)


class _Beside:
    """What is written after long pasts beside what is written after their stand-ins, which are mostly the same ones."""

    def __init__(self, suffix: Suffix) -> None:
        self._suffix = suffix
        self._short: dict[tuple[int, int], object] = {}

    def differs(self, past: Sequence[Item], end: int, setting: int) -> bool | None:
        """Whether what is new comes out differently; None where no session can have come to this."""
        systems, tools = _SETTINGS[setting]
        last, new = _ENDS[end]
        before = [*systems, *past, *last]
        if (end, setting) not in self._short:
            self._short[end, setting] = self._outcome(stand_in(before), new, tools)
        written, short = self._outcome(before, new, tools), self._short[end, setting]
        if written is None and self._outcome(before, (), tools) is None:
            return None
        return written != short

    def _outcome(self, before: Sequence[Item], new: Sequence[Item], tools: Sequence[ToolSpec]) -> object:
        try:
            return self._suffix(before, new, tools)
        except TemplateFailed:
            return None


# Turns. Each text is another one, so that a text that comes from somewhere else shows.


def _call(name: str, id: str) -> ToolCall:
    return ToolCall(id, name, '{"at": "here"}')


def _asks(tag: str, calls: int = 1, reasoning: str = "") -> AssistantItem:
    return AssistantItem(f"{tag} text", reasoning, tuple(_call("look", f"{tag} id {one}") for one in range(calls)))


def _result(tag: str, one: int = 0) -> ToolResultItem:
    return ToolResultItem(f"{tag} id {one}", "look", f"{tag} result {one}")


def _plain(tag: str) -> list[Item]:
    return [UserItem(f"{tag} request"), AssistantItem(f"{tag} answer")]


def _calling(tag: str, calls: int = 1, reasoning: str = "") -> list[Item]:
    results = [_result(tag, one) for one in range(calls)]
    return [UserItem(f"{tag} request"), _asks(tag, calls, reasoning), *results, AssistantItem(f"{tag} done", reasoning)]


def _rounds(tag: str) -> list[Item]:
    more = f"{tag} more"
    return [*_calling(tag)[:-1], _asks(more), _result(more), AssistantItem(f"{tag} done")]


_SHORT, _LONG = 6, 24


def _pasts(named: Named) -> Iterator[tuple[str, list[Item]]]:
    """What a conversation may have been before its last turn, each with words for it; the cheapest first."""
    more = "more messages"
    yield more, []
    yield more, _plain("1")
    yield "a tool call", _calling("1")
    yield "several calls at once", _calling("1", 2)
    yield "several rounds of calls", _rounds("1")
    yield "reasoning", [UserItem("1"), AssistantItem("2", "3")]
    yield "a call with reasoning", _calling("1", 1, "why")
    yield "a call without text", [UserItem("1"), AssistantItem(calls=(_call("look", "i"),)), _result("i")]
    yield "an answer that was cut", [UserItem("1"), AssistantItem("2", incomplete=True)]
    yield "an empty answer", [UserItem("1"), AssistantItem("")]
    yield "an answer to no request", [AssistantItem("1")]
    yield "two requests in a row", [UserItem("1"), *_plain("2")]
    yield "a system message between others", [*_plain("1"), SystemItem("2"), *_plain("3")]
    yield "a turn before a call", [*_plain("1"), *_calling("2")]
    yield "a turn after a call", [*_calling("1"), *_plain("2")]
    # So that each number in the template is once reached by the messages and once by the turns.
    most = max([number for number in named.numbers if number > 0] + [8])
    for count in [*range(3, most // 2 + 3), *range(max(most - 1, most // 2 + 3), most + 3)]:
        yield more, [item for turn in range(count) for item in _plain(str(turn))]
    yield "several tool calls", [item for turn in range(most + 2) for item in _calling(str(turn))]
    for what, words in (("the same words", _WORDS), ("certain words", named.words)):
        yield what, [item for word in words for item in (UserItem(word), AssistantItem(word, word))]
    for what, words in (("the same calls", _WORDS), ("calls of certain tools", named.words)):
        yield what, [item for word in words for item in _called(word)]


def _called(word: str) -> list[Item]:
    call = ToolCall(word, word, '{"at": "here"}')
    return [UserItem(word), AssistantItem(calls=(call,)), ToolResultItem(word, word, word), AssistantItem(word)]


def _words_of(item: Item) -> Iterator[str]:
    yield item.text
    if isinstance(item, AssistantItem):
        yield item.reasoning
        yield from (call.id for call in item.calls)
    if isinstance(item, ToolResultItem):
        yield item.call_id


_NEW, _MORE = UserItem("new request"), UserItem("newest request")
_THEN: list[Item] = [_NEW, AssistantItem("new answer", "new reason"), _MORE]

_ENDS: tuple[tuple[Sequence[Item], Sequence[Item]], ...] = (
    (_plain("last"), []),
    (_plain("last"), [_NEW]),
    (_plain("last"), _THEN),
    (_plain("last"), [_NEW, _asks("new"), _result("new")]),
    (_plain("last"), [*_calling("new", 2, "new reason"), _MORE]),
    ([*_plain("last"), UserItem("open request")], []),
    ([*_plain("last"), UserItem("open request")], [_NEW]),
    ([*_plain("last"), UserItem("open request")], [_asks("new"), _result("new"), AssistantItem("so"), _NEW]),
    ([UserItem("asked"), AssistantItem("said", "reason")], [_NEW]),
    ([UserItem("asked"), AssistantItem("said", "reason")], _THEN),
    ([UserItem("asked"), AssistantItem("cut", incomplete=True)], [_NEW]),
    ([UserItem("asked"), AssistantItem("")], [_NEW]),
    ([UserItem("asked"), AssistantItem(calls=(_call("look", "a"),))], [ToolResultItem("a", "look", "b")]),
    ([UserItem("asked"), _asks("last")], [_result("last")]),
    ([UserItem("asked"), _asks("last")], [_result("last"), AssistantItem("so"), _NEW]),
    ([UserItem("asked"), _asks("last"), _result("last")], []),
    ([UserItem("asked"), _asks("last"), _result("last")], [_NEW]),
    ([UserItem("asked"), _asks("last", 2)], [_result("last", 0), _result("last", 1)]),
    ([UserItem("asked"), _asks("last", 2), _result("last", 0)], [_result("last", 1), _NEW]),
    ([UserItem("asked"), _asks("last", 1, "reason")], [_result("last")]),
    ([UserItem("asked"), _asks("last", 1, "reason"), _result("last")], [AssistantItem("so", "new reason"), _NEW]),
    (_calling("last"), [_NEW]),
    (_rounds("last"), _THEN),
    (_rounds("last"), [AssistantItem("said besides", "new reason"), _NEW]),
    ([*_calling("last")[:-1], _asks("next")], [_result("next")]),
    ([*_calling("last")[:-1], _asks("next"), _result("next")], [_asks("new"), _result("new")]),
)
"""How a past may end, from its last request on, and what may come next."""

_WORDS = tuple(dict.fromkeys(word for last, new in _ENDS for item in (*last, *new) for word in _words_of(item)))
"""What is said in them."""
