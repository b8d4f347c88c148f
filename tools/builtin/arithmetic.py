"""Arithmetic as people and models write it, evaluated exactly: a parser by binding power over `bounded` operations.

    expression = operand { operator operand }
    operator   = + - * x / // % ** ^ and their typographic forms
    operand    = [+ -] operand | number | ( expression ) | function ( expression { , expression } )
    number     = digits with thousands in groups of three, a fraction, an exponent

Outside a function's parentheses a comma stands only between thousands: `1,234`. Inside them it separates arguments.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from tenuto.tools.builtin import bounded
from tenuto.tools.builtin.bounded import CannotEvaluate

__all__ = ["CannotEvaluate", "evaluate"]

MAX_CHARACTERS = 1000
MAX_DEPTH = 50

_BLANKS = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d_]+")
_TAIL = r"(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(rf"[0-9]+{_TAIL}")
_GROUPED = re.compile(rf"(?:[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])|[0-9]+){_TAIL}")
_OPERATOR = re.compile(r"\*\*|//|[-+*/%^−–×·⋅÷∶xX]")
_SAME_AS = {"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "x": "*", "X": "*", "÷": "/", "∶": "/", "^": "**"}

_SIGN_POWER = 3
"""A sign binds looser than a power and tighter than a product: -2 ** 2 is -4."""
_BINARY: dict[str, tuple[int, int, Callable[[Fraction, Fraction], Fraction]]] = {
    # operator: power to its left, power to its right, meaning. Equal powers would be ambiguous; ** groups to the right.
    "+": (1, 2, bounded.add),
    "-": (1, 2, bounded.subtract),
    "*": (2, 3, bounded.multiply),
    "/": (2, 3, bounded.divide),
    "//": (2, 3, bounded.floor_divide),
    "%": (2, 3, bounded.remainder),
    "**": (5, 4, bounded.power),
}
_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Fraction]]] = {
    # name: fewest and most arguments, meaning.
    "sqrt": (1, 1, bounded.square_root),
    "abs": (1, 1, abs),
    "round": (1, 2, bounded.round_to),
    "min": (1, MAX_CHARACTERS, lambda *values: min(values)),
    "max": (1, MAX_CHARACTERS, lambda *values: max(values)),
}


def evaluate(text: str) -> Fraction:
    """The value of an expression. What is irrational is taken to 40 digits.

    Raises:
        CannotEvaluate: it is not an expression, has no value, or is over a limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise CannotEvaluate(f"the expression has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    return _Reader(text).read()


class _Reader:
    """One pass over one text. Recursion is bounded by MAX_DEPTH, time by the text's length."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._in_arguments = False

    def read(self) -> Fraction:
        value = self._expression(0)
        if self._at < len(self._text):
            raise self._unexpected("an operator")
        return value

    def _expression(self, power: int) -> Fraction:
        """Read operands and operators as long as these bind at least as tightly as `power`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotEvaluate(f"the expression is nested more than {MAX_DEPTH} deep")
        value = self._operand()
        while found := self._take(_OPERATOR):
            left, right, meaning = _BINARY[_SAME_AS.get(found, found)]
            if left < power:
                self._at -= len(found)
                break
            # `50%` and `50% + 1` were meant as percentages by whoever wrote them.
            if found == "%" and self._peek() in ("", ")", ",", "+", "-"):
                raise CannotEvaluate("'%' is the remainder of a division; for a percentage divide by 100")
            value = meaning(value, self._expression(right))
        self._skip_blanks()
        self._depth -= 1
        return value

    def _operand(self) -> Fraction:
        match self._peek():
            case "+":
                self._at += 1
                return self._expression(_SIGN_POWER)
            case "-" | "−" | "–":
                self._at += 1
                return -self._expression(_SIGN_POWER)
            case "(":
                return self._parenthesis(arguments=False)[0]
        number = self._take(_NUMBER if self._in_arguments else _GROUPED)
        if number == "0" and self._text[self._at : self._at + 1] in ("x", "X"):
            raise CannotEvaluate("numbers are decimal; for a product with x write blanks around it")
        if number:
            return bounded.number(number.replace(",", ""))
        name = self._take(_NAME)
        if name:
            return self._function(name)
        raise self._unexpected("a number")

    def _function(self, name: str) -> Fraction:
        known = _FUNCTIONS.get(name.lower())
        if known is None:
            raise CannotEvaluate(f"{name[:20]!r} is not known; the functions are {', '.join(_FUNCTIONS)}")
        if self._peek() != "(":
            raise CannotEvaluate(f"{name!r} needs its argument in parentheses")
        fewest, most, meaning = known
        values = self._parenthesis(arguments=True)
        if not fewest <= len(values) <= most:
            raise CannotEvaluate(f"{name!r} takes {fewest if fewest == most else f'{fewest} to {most}'} arguments")
        return meaning(*values)

    def _parenthesis(self, *, arguments: bool) -> list[Fraction]:
        outside, self._in_arguments = self._in_arguments, arguments
        self._at += 1
        values = [self._expression(0)]
        while arguments and self._peek() == ",":
            self._at += 1
            values.append(self._expression(0))
        if self._peek() != ")":
            raise self._unexpected("an operator or ')'")
        self._at += 1
        self._in_arguments = outside
        return values

    def _take(self, pattern: re.Pattern[str]) -> str:
        self._skip_blanks()
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found.group()

    def _peek(self) -> str:
        self._skip_blanks()
        return self._text[self._at : self._at + 1]

    def _skip_blanks(self) -> None:
        found = _BLANKS.match(self._text, self._at)
        assert found is not None  # it matches nothing, too
        self._at = found.end()

    def _unexpected(self, wanted: str) -> CannotEvaluate:
        found = self._text[self._at : self._at + 12]
        place = f"character {self._at + 1} {found!r}" if found else "the end"
        return CannotEvaluate(f"{wanted} was expected at {place}")
