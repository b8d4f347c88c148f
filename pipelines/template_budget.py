"""What a rendering may cost: operations, and the bytes that they touch or make. No template engine but its error."""

from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from typing import Any

from jinja2 import TemplateRuntimeError

# A unit is one operation, or so many bytes: about a microsecond either way.
_BYTES = 256
_NODE = 64
"""What a value takes beside its text."""
_BASE, _PER_BYTE = 200_000, 16
_MOST_BITS = 1 << 14
"""Of a number that may still be multiplied or printed."""


class Overrun(TemplateRuntimeError):
    """The template loops for too long, or makes too much text."""


class Budget:
    """What is left for one rendering. It grows with the conversation that is rendered.

    Each list and mapping is weighed once; those that the template makes, anew after it has changed one. They are held,
    that no other gets their ids. A list that holds another one twice weighs twice as much, as it would when it is
    printed. What is rendered never changes.
    """

    def __init__(self, inputs: Iterable[object] = ()) -> None:
        self._weights: dict[int, tuple[object, int]] = {}
        self._inputs: dict[int, tuple[object, int]] = {}
        self._left = self._whole = _BASE
        self._left = self._whole = _BASE + _PER_BYTE * sum(map(self.weigh, inputs))
        self._inputs, self._weights = self._weights, {}

    def spend(self, units: int = 1) -> None:
        """Take some of it.

        Raises:
            Overrun: nothing is left.
        """
        self._left -= units
        if self._left < 0:
            raise Overrun(f"the model's chat template takes more than {self._whole} steps to render this conversation")

    def spend_bytes(self, count: int) -> None:
        """Pay for text that is read or made, before it is."""
        self.spend(1 + count // _BYTES)

    def spend_bits(self, count: int) -> None:
        """Refuse numbers that are too long to compute with."""
        if count > _MOST_BITS:
            raise Overrun("the model's chat template computes with numbers that are too large")

    def weigh(self, value: object) -> int:
        """About the bytes that a value has as text or as JSON."""
        if isinstance(value, (str, bytes)):
            return _NODE + len(value)
        if value is None or not isinstance(value, (dict, list, tuple, Mapping, Set)):
            return _NODE + 8 * len(value) if isinstance(value, Sized) else _NODE
        known = self._weights.get(id(value)) or self._inputs.get(id(value))
        if known is None:
            self.spend()
            weight = _NODE + sum(map(self.weigh, value))
            if isinstance(value, Mapping):
                weight += sum(map(self.weigh, value.values()))
            known = self._weights[id(value)] = (value, weight)
        return known[1]

    def may_change(self, value: list[Any]) -> bool:
        """Whether the template has made this list itself."""
        return id(value) not in self._inputs

    def change(self, changed: list[Any], added: Sequence[object]) -> None:
        """Pay for a change of a list that the template has made, before it is made.

        Raises:
            Overrun: the list would hold itself, so that its text had no end that can be told.
        """
        self.spend_bytes(8 * len(changed))
        if any(self._holds(value, changed) for value in added):
            raise Overrun("the model's chat template puts a list into itself")
        self._weights.clear()

    def _holds(self, value: object, wanted: list[Any]) -> bool:
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if one is wanted:
                return True
            if not isinstance(one, (list, tuple, Mapping, Set)) or id(one) in seen or id(one) in self._inputs:
                continue
            seen.add(id(one))
            self.spend_bytes(8 * len(one))
            waiting += one.values() if isinstance(one, Mapping) else one
        return False


def bits(value: Any) -> int:
    """The length of a whole number; 0 of anything else."""
    return value.bit_length() if isinstance(value, int) else 0
