"""What a turn of the model's says, as its parser tells it: text, reasoning and calls."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call has begun and its name is known. `index` counts the calls of the turn from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of the call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A tool call is whole. `arguments` is the JSON text, as the model wrote it."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallBroken:
    """What looked like a call is none, or was cut. `text` is what the model wrote; `index` is set if it was started."""

    text: str
    reason: str
    index: int | None = None


TurnEvent = TextDelta | ReasoningDelta | CallStarted | CallArguments | CallFinished | CallBroken


class TurnParser(Protocol):
    """One turn's tokens to events. The same for streamed and whole answers; never raises on what a model wrote."""

    def push(self, token: int) -> list[TurnEvent]:
        """Read the next sampled token."""

    def finish(self) -> list[TurnEvent]:
        """The turn has ended or was cut: give what was held back."""
