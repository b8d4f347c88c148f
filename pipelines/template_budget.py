"""What a rendering may cost: operations, and the bytes that they touch or make. No template engine but its error."""

from collections.abc import Iterable, Mapping, Set, Sized
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

    Lists and mappings that a template sees never change, so each is weighed once; it is held, that no other gets its
    id. A list that holds another one twice weighs twice as much, as it would when it is printed.
    """

    def __init__(self, inputs: Iterable[object] = ()) -> None:
        self._weights: dict[int, tuple[object, int]] = {}
        self._left = self._whole = _BASE
        self._left = self._whole = _BASE + _PER_BYTE * sum(map(self.weigh, inputs))

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
        known = self._weights.get(id(value))
        if known is None:
            self.spend()
            weight = _NODE + sum(map(self.weigh, value))
            if isinstance(value, Mapping):
                weight += sum(map(self.weigh, value.values()))
            known = self._weights[id(value)] = (value, weight)
        return known[1]


def bits(value: Any) -> int:
    """The length of a whole number; 0 of anything else."""
    return value.bit_length() if isinstance(value, int) else 0
