"""What readers of calls have in common: the text so far, and the name once it has come."""

import re
from abc import ABC, abstractmethod

from tenuto.pipelines.formats.streams import LONGEST_HEAD, Written
from tenuto.pipelines.turns import CallArguments, CallBroken, CallFinished, CallStarted, TurnEvent


class CallSoFar:
    """A call while it is read. It is told as started once it has a name."""

    def __init__(self, index: int) -> None:
        self.rest: str | None = None
        """What was pushed beyond the call's own end; None while that has not come."""
        self._index = index
        self._name = ""
        self._written = Written()

    @property
    def text(self) -> str:
        """All that was written."""
        return str(self._written)

    @property
    def started(self) -> bool:
        """Whether the name was told."""
        return bool(self._name)

    def broken(self, reason: str) -> CallBroken:
        """What is to be told of a call that is none."""
        return CallBroken(text=self.text, reason=reason, index=self._index if self.started else None)

    def _tell_name(self, name: str) -> CallStarted:
        self._name = name
        return CallStarted(self._index, name)


class CallReadWhole(CallSoFar, ABC):
    """A call whose name is told when it has come, and whose arguments are read when the call is closed."""

    def __init__(self, index: int, head: re.Pattern[str]) -> None:
        """`head`: what stands before the arguments, with the name as its first group."""
        super().__init__(index)
        self._head = head
        self._begin = ""
        """As much of the text as may hold the name, while it has not come."""

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        self._written.add(text)
        if self.started or len(self._begin) == LONGEST_HEAD:
            return []
        self._begin = (self._begin + text)[:LONGEST_HEAD]
        found = self._head.match(self._begin)
        return [] if found is None else [self._tell_name(found[1])]

    def close(self) -> list[TurnEvent]:
        """The call is whole."""
        try:
            arguments = self._arguments()
        except (ValueError, RecursionError) as error:
            return [self.broken(str(error) or type(error).__name__)]
        return [CallArguments(self._index, arguments), CallFinished(self._index, self._name, arguments)]

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        try:
            self._arguments()
        except (ValueError, RecursionError):
            return False
        return True

    @abstractmethod
    def _arguments(self) -> str:
        """The arguments as the text of a JSON object. Raises ValueError with the reason in words."""
