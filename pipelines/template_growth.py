"""How much text the operations of templates would make, told before they make it. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from tenuto.pipelines.template_budget import Budget, Overrun, bits

Arguments = Sequence[Any]

# A width or a precision of five digits, one that an argument gives, a field in a field: no chat template has any.
_WIDE = re.compile(r"\d{5}|%[^a-zA-Z%]*\*|\{[^{}]*\{")


def _wide(position: int) -> Callable[[Budget, Any, Arguments], int]:
    """Text of a width, which stands at a place among the arguments."""

    def grown(_: Budget, text: Any, given: Arguments) -> int:
        width = given[position] if len(given) > position else 0
        if isinstance(width, str):
            width = len(width)
        if not isinstance(width, (int, float)):
            return 0
        lines = 1 + (text.count("\n") + text.count("\t") if isinstance(text, str) else 0)
        return lines * abs(int(width))

    return grown


def _replaced(_: Budget, text: Any, given: Arguments) -> int:
    if (
        not isinstance(text, (str, bytes))
        or len(given) < 2
        or not all(isinstance(each, (str, bytes)) for each in given[:2])
    ):
        return 0
    old, new = given[0], given[1]
    return (text.count(old) if old else len(text) + 1) * len(new)


def _joined(budget: Budget, one: Any, given: Arguments) -> int:
    """`separator.join(parts)` and `parts | join(separator)`."""
    parts, separator = (
        (given[0] if given else (), one) if isinstance(one, (str, bytes)) else (one, given[0] if given else "")
    )
    number = len(parts) if hasattr(parts, "__len__") else 0
    return budget.weigh(parts) + number * budget.weigh(separator)


def _filled(budget: Budget, form: Any, given: Arguments) -> int:
    text = form if isinstance(form, str) else ""
    if _WIDE.search(text):
        raise Overrun("the model's chat template formats text to an excessive width")
    return (text.count("{") + text.count("%")) * sum(map(budget.weigh, given))


def _translated(budget: Budget, text: Any, given: Arguments) -> int:
    return len(text) * sum(map(budget.weigh, given)) if isinstance(text, (str, bytes)) else 0


def _precise(budget: Budget, _: Any, given: Arguments) -> int:
    precision = given[0] if given else 0
    budget.spend_bits(abs(precision) * 4 if isinstance(precision, int) else 0)
    return 0


_FIRST = _wide(0)
GROWTH: dict[str, Callable[[Budget, Any, Arguments], int]] = {
    **dict.fromkeys(
        ("center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "indent", "batch", "slice"), _FIRST
    ),
    "tojson": lambda budget, value, given: budget.weigh(value) // 16 * _wide(1)(budget, "", given),
    "wordwrap": lambda budget, value, given: _translated(budget, value, given[2:3]),
    "replace": _replaced,
    "join": _joined,
    "format": _filled,
    "format_map": _filled,
    "translate": _translated,
    "round": _precise,
}
"""By the name of a method or filter: the bytes that it makes beside those that it is given."""


def binary(budget: Budget, operator: str, left: Any, right: Any) -> int:
    """The bytes that an operation on two values touches or makes."""
    if isinstance(left, int) and isinstance(right, int):
        budget.spend_bits(bits(left) * max(right, 1) if operator == "**" else bits(left) + bits(right))
        return 0
    if operator == "*":
        times = next((each for each in (left, right) if isinstance(each, int)), 0)
        return max(times, 0) * next((budget.weigh(each) for each in (left, right) if hasattr(each, "__len__")), 0)
    if operator == "%" and isinstance(left, (str, bytes)):
        return _filled(budget, left, (right,)) + len(left)
    return sum(
        8 * len(each) if isinstance(each, (list, tuple)) else len(each)
        for each in (left, right)
        if hasattr(each, "__len__")
    )
