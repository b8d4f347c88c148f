"""An answer whose beginning its client has written: the last message of a request, where that is the assistant's."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.sessions.items import AssistantItem, Item


@dataclass(frozen=True, slots=True)
class Prefill:
    """The beginning of a round's text, and what was thought before it. `round` is its number in the run, from 1."""

    text: str
    reasoning: str = ""
    round: int = 1

    @property
    def item(self) -> AssistantItem:
        """The turn so far."""
        return AssistantItem(self.text, self.reasoning)


def split(items: Sequence[Item]) -> tuple[tuple[Item, ...], Prefill | None]:
    """The items of a request without the beginning of its answer, and that, if they end with one."""
    *before, last = items
    if before and isinstance(last, AssistantItem) and last.text and not last.calls:
        return tuple(before), Prefill(last.text, last.reasoning)
    return tuple(items), None
