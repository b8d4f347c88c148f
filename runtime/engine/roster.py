"""The sequences of an engine, each in the table of its state. Whatever happens to one happens here."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tenuto.runtime.engine.messages import LASTING, State
from tenuto.runtime.engine.sequence import Sequence, SequenceTrigger

Table = Mapping[str, Sequence]
"""Sequences by id, in the order in which they came into their state, or were sent to its end."""


class Roster:
    """One entry for each sequence that is known. Engine thread only.

    The tables change with the states and in no other way, so that a sequence is in exactly one.
    """

    def __init__(self) -> None:
        self._known: dict[str, Sequence] = {}
        self._tables: dict[State, dict[str, Sequence]] = {state: {} for state in State}
        self.waiting, self.prefilling, self.decoding, self.blocked = map(
            self._table, (State.WAITING, State.PREFILLING, State.DECODING, State.BLOCKED)
        )

    def _table(self, state: State) -> Table:
        return MappingProxyType(self._tables[state])

    def __iter__(self) -> Iterator[Sequence]:
        return iter(list(self._known.values()))

    def get(self, id: str) -> Sequence | None:
        """The sequence of that id."""
        return self._known.get(id)

    def on(self, sequence: Sequence, trigger: SequenceTrigger) -> None:
        """Move a sequence, which may be new, to its next state. Raises IllegalTransition, with nothing changed."""
        before = sequence.state
        sequence.on(trigger)
        self._tables[before].pop(sequence.id, None)
        if sequence.state is State.RELEASED:
            self._known.pop(sequence.id, None)
        else:
            self._known[sequence.id] = self._tables[sequence.state][sequence.id] = sequence

    def send_back(self, sequence: Sequence) -> None:
        """Put a sequence behind the others of its state."""
        table = self._tables[sequence.state]
        table[sequence.id] = table.pop(sequence.id)

    @property
    def has_work(self) -> bool:
        """Whether a step, or an admission, has something to do."""
        return bool(self.waiting or self.prefilling or self.decoding)

    def counts(self) -> dict[State, int]:
        """How many sequences are in each state that lasts."""
        return {state: len(self._tables[state]) for state in LASTING}
