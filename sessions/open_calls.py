"""Which call a result answers, also where its client sends no ids: by their order, and the names of tools. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem


class OpenCalls:
    """The calls of a round that have no result yet."""

    def __init__(self, calls: Iterable[ToolCall] = ()) -> None:
        self._calls = list(calls)

    def take(self, result: ToolResultItem) -> ToolCall | None:
        """The call that a result answers, which no other result answers then; None where there is none.

        A result without an id answers the first call of the tool that it names, and else the first of all.
        """
        if result.call_id:
            call = next((one for one in self._calls if one.id == result.call_id), None)
        else:
            named = (one for one in self._calls if one.name == result.name)
            call = next(named, None) or next(iter(self._calls), None)
        if call is not None:
            self._calls = [one for one in self._calls if one is not call]
        return call


def identified(before: Sequence[Item], new: Sequence[Item]) -> list[Item]:
    """The new items, with ids for calls whose client sends none, and for each result that of the call it answers.

    What the runtime wrote in place of a client's result (`server`) leaves its call open.
    """
    if all(map(_has_ids, new)):
        return [*new]
    waiting = _open_after(before)
    found: list[Item] = []
    for place, item in enumerate(new, len(before)):
        if isinstance(item, AssistantItem):
            calls = (replace(call, id=call.id or f"call_{place}_{n}") for n, call in enumerate(item.calls))
            item = replace(item, calls=tuple(calls))
            waiting = OpenCalls(item.calls)
        elif isinstance(item, ToolResultItem):
            call = waiting.take(item)
            item = item if call is None else replace(item, call_id=call.id, name=item.name or call.name)
        found.append(item)
    return found


def _has_ids(item: Item) -> bool:
    if isinstance(item, AssistantItem):
        return all(call.id for call in item.calls)
    return not isinstance(item, ToolResultItem) or bool(item.call_id)


def _open_after(items: Sequence[Item]) -> OpenCalls:
    results: list[ToolResultItem] = []
    for item in reversed(items):
        if isinstance(item, AssistantItem):
            waiting = OpenCalls(call for call in item.calls if not call.server)
            for result in reversed(results):
                waiting.take(result)
            return waiting
        if isinstance(item, ToolResultItem) and not item.server:
            results.append(item)
    return OpenCalls()
