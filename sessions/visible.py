"""What a client saw of a session: its items with the server's own rounds folded away, and digests of them. Pure.

An item is *visible* if a client that repeats the conversation would send it: system and user items, assistant turns,
and results of client tools. The runtime's record is not: its notes, and results with `server` true, which are those of
server tools, and those that it wrote in place of a client that never answered. What a client has named of an MCP server
is told by that name: of a prompt the first message stands for all.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from tenuto.sessions.ids import is_own_call_id
from tenuto.sessions.items import (
    AssistantItem,
    Item,
    McpPrompt,
    McpResource,
    NoteItem,
    ToolCall,
    ToolResultItem,
    UserItem,
    source_of,
)
from tenuto.sessions.open_calls import OpenCalls
from tenuto.sessions.rounds import ends_turn


@dataclass(frozen=True, slots=True)
class Visible:
    """An item as a client saw it. It stands for the session's items from `start` up to `end`, hidden ones included."""

    item: Item
    start: int
    end: int


def canonical(items: Iterable[Item]) -> list[Item]:
    """The items with tool results in the order of their calls and named by them, as sessions keep them."""
    done: list[Item] = []
    names: dict[str, str] = {}
    places: dict[int, int] = {}
    waiting = OpenCalls()
    batch: list[tuple[int, ToolResultItem]] = []

    def flush() -> None:
        done.extend(result for _, result in sorted(batch, key=lambda one: one[0]))
        batch.clear()

    for item in items:
        if isinstance(item, ToolResultItem):
            call = waiting.take(item)
            name = item.name or (names.get(item.call_id, "") if call is None else call.name)
            place = len(places) if call is None else places[id(call)]
            batch.append((place, item if name == item.name else replace(item, name=name)))
            continue
        flush()
        if isinstance(item, AssistantItem):
            places = {id(call): place for place, call in enumerate(item.calls)}
            names.update((call.id, call.name) for call in item.calls if call.id)
            waiting = OpenCalls(item.calls)
        done.append(item)
    flush()
    return done


def visible(items: Sequence[Item], first: int = 0) -> list[Visible]:
    """The visible items among `items[first:]`; `first` must be where a visible item begins.

    Rounds that called only server tools, or were answered by a note, become one assistant item with the round after
    them. An assistant item with
    neither text nor client calls is hidden: clients leave it out or send it empty, as they like.
    """
    found: list[Visible] = []
    position = first
    while position < len(items):
        item, end = _fold(items, position)
        if _is_hidden(item):
            if found:
                found[-1] = replace(found[-1], end=end)
        else:
            found.append(Visible(item, position, end))
        position = end
    return found


def _fold(items: Sequence[Item], start: int) -> tuple[Item, int]:
    """The item at `start`, with the rounds that join it if it is a server's, and the index after what was used."""
    item, end = items[start], start + 1
    if not _is_said_here(item):
        return item, end
    rounds = [item]
    while all(call.server for call in rounds[-1].calls):
        begin = end
        while end < len(items) and _is_record(items[end]):
            end += 1
        after = items[end] if begin < end < len(items) else None
        if after is None or not _is_said_here(after):
            break
        rounds.append(after)
        end += 1
    return AssistantItem(
        text="".join(one.text for one in rounds),
        reasoning="".join(one.reasoning for one in rounds),
        calls=tuple(call for one in rounds for call in one.calls if not call.server),
        incomplete=rounds[-1].incomplete,
    ), end


def _is_said_here(item: Item) -> TypeGuard[AssistantItem]:
    return isinstance(item, AssistantItem) and item.source is None


def _is_record(item: Item) -> bool:
    return isinstance(item, NoteItem) or (isinstance(item, ToolResultItem) and item.server)


def _is_hidden(item: Item) -> bool:
    source = source_of(item)
    if source is not None:
        return isinstance(source, McpPrompt) and source.place > 0
    return _is_record(item) or (isinstance(item, AssistantItem) and not item.text and not item.calls)


def canonical_arguments(text: str) -> str:
    """The arguments of a call as one text for all ways of writing the same JSON; nothing and null are `{}`.

    Text that is not JSON stands for itself.
    """
    try:
        value = json.loads(text, parse_float=_number) if text.strip() else None
        return json.dumps({} if value is None else value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | int:
    # JavaScript clients write 1.0 as 1.
    value = float(text)
    return int(value) if value.is_integer() else value


def difference(stored: Item, given: Item) -> str | None:
    """In what a client's visible item differs from ours, None where it repeats it.

    Reasoning and call ids count only where the client gives them. A call that has the id that we gave it is that call,
    whatever its arguments are by now: clients fill in defaults, shorten commands and trim texts before they repeat it.
    """
    if source_of(stored) is not None or source_of(given) is not None:
        return None if _named(source_of(stored)) == _named(source_of(given)) else "what it names of an MCP server"
    if stored.kind != given.kind:
        return f"kind ({given.kind})"
    if stored.text != given.text:
        return "text"
    if isinstance(stored, _CARRYING) and isinstance(given, _CARRYING) and stored.attachments != given.attachments:
        return "attachments"
    if isinstance(stored, AssistantItem) and isinstance(given, AssistantItem):
        if given.reasoning and stored.reasoning != given.reasoning:
            return "reasoning"
        return _calls_difference(stored.calls, given.calls)
    if isinstance(stored, ToolResultItem) and isinstance(given, ToolResultItem):
        if stored.is_error != given.is_error:
            return "is_error"
        if _ids_differ(stored.call_id, given.call_id):
            return "call id"
    return None


_CARRYING = (UserItem, ToolResultItem)


def _calls_difference(stored: Sequence[ToolCall], given: Sequence[ToolCall]) -> str | None:
    if [call.name for call in stored] != [call.name for call in given]:
        return "calls"
    for mine, theirs in zip(stored, given, strict=True):
        if _ids_differ(mine.id, theirs.id):
            return f"call id of {mine.name}"
        if not _is_told_by_id(mine, theirs) and not _same_arguments(mine.arguments, theirs.arguments):
            return f"arguments of {mine.name}"
    return None


def _is_told_by_id(stored: ToolCall, given: ToolCall) -> bool:
    return stored.id == given.id and is_own_call_id(stored.id)


def _same_arguments(stored: str, given: str) -> bool:
    return stored == given or canonical_arguments(stored) == canonical_arguments(given)


def _ids_differ(stored: str, given: str) -> bool:
    return bool(stored and given and stored != given)


def _content(item: Item) -> bytes:
    """All of a visible item that both sides always have alike: no reasoning, and of calls their names alone."""
    if (source := source_of(item)) is not None:
        return json.dumps(_named(source)).encode()
    content: list[object] = [item.kind, item.text]
    if isinstance(item, _CARRYING) and item.attachments:  # without any, digests are as they were before there were some
        content.append([[one.kind, one.mime_type, one.data, one.uri] for one in item.attachments])
    if isinstance(item, AssistantItem):
        content.append([call.name for call in item.calls])
    if isinstance(item, ToolResultItem):
        content.append(item.is_error)
    return json.dumps(content).encode()


def _named(source: McpResource | McpPrompt | None) -> list[object] | None:
    """How a client names it, as it repeats it."""
    match source:
        case McpResource():
            return [source.kind, source.server, source.uri]
        case McpPrompt():
            return [source.kind, source.server, source.name, sorted(source.arguments.items())]
    return None


def _digest(before: bytes, item: Item) -> bytes:
    return hashlib.sha256(before + _content(item)).digest()


@dataclass(frozen=True, slots=True)
class VisiblePrefix:
    """The first visible items of a history, and their digest. `visible` may hold more of them."""

    visible: Sequence[Visible]
    count: int
    digest: bytes

    def __len__(self) -> int:
        return self.count


@dataclass(slots=True)
class VisibleHistory:
    """What is visible of a growing list of items, with digests, computed for what is new since the last time."""

    visible: list[Visible] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    """The k-th is the digest of the visible items up to the k-th; items that repeat each other have equal ones.

    Equal digests leave reasoning, and the ids and arguments of calls, to be compared.
    """
    _seen: list[Item] = field(default_factory=list)

    def digest(self, items: Sequence[Item]) -> str:
        """The digest of all visible items; empty where there are none."""
        self.follow(items)
        return self.digests[-1].hex() if self.digests else ""

    def follow(self, items: Sequence[Item]) -> None:
        """Let it be that of these items, of which it has mostly seen all but the last."""
        same = self._same(items)
        if same == len(items) == len(self._seen):
            return
        # Later items can still join the last visible item, so it stays only if another begins within what is the same.
        while self.visible and self.visible[-1].start >= same:
            self._pop()
        first = self.visible[-1].start if self.visible else 0
        if self.visible:
            self._pop()
        digest = self.digests[-1] if self.digests else b""
        for one in visible(items, first):
            digest = _digest(digest, one.item)
            self.visible.append(one)
            self.digests.append(digest)
        self._seen[same:] = items[same:]

    def prefix(self, items: Sequence[Item], at: int) -> VisiblePrefix:
        """What is visible of the first `at` items."""
        self.follow(items)
        count = self._begun(at)
        if count and self.visible[count - 1].end > at:  # within a visible item
            shorter = VisibleHistory()
            shorter.follow(items[:at])
            return shorter.prefix(items[:at], at)
        return VisiblePrefix(self.visible, count, self.digests[count - 1] if count else b"")

    def turns(self, items: Sequence[Item], since: int) -> list[tuple[int, str]]:
        """The turns that end among `items[since:]`: how many items there are up to there, and their digest."""
        self.follow(items)
        found: list[tuple[int, str]] = []
        count = self._begun(since)
        for end in range(since + 1, len(items) + 1):
            while count < len(self.visible) and self.visible[count].start < end:
                count += 1
            if count and ends_turn(items, end - 1):
                found.append((end, self.digests[count - 1].hex()))
        return found

    def copy(self) -> "VisibleHistory":
        """One of its own, of the same items."""
        return VisibleHistory([*self.visible], [*self.digests], [*self._seen])

    def _begun(self, at: int) -> int:
        """How many visible items begin among the first `at`."""
        return bisect_left(self.visible, at, key=lambda one: one.start)

    def _same(self, items: Sequence[Item]) -> int:
        """How many items have been seen. Mostly all are, and then no item is looked at, only where it lies."""
        end = min(len(self._seen), len(items))
        mine = self._seen if end == len(self._seen) else self._seen[:end]
        theirs = items if end == len(items) else items[:end]
        if mine == theirs:
            return end
        return next((place for place in range(end) if mine[place] != theirs[place]), end)

    def _pop(self) -> None:
        self.visible.pop()
        self.digests.pop()
