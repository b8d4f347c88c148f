"""Operations on fractions whose size, and so whose time, has a bound: what is too large is refused, not computed."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

MAX_BITS = 8192
"""Of a numerator and of a denominator: about 2,466 decimal digits."""
MAX_EXPONENT = 1000
"""Of a number written as 1e1000."""

_HUGE = 10**15
"""No exponent of a power may be larger, however near to 1 its base is."""
_FORTY_DIGITS = Context(prec=40, Emin=-MAX_BITS, Emax=MAX_BITS)


class CannotEvaluate(Exception):
    """The expression cannot be read, has no value, or is over a limit; the text is meant for its writer."""


def number(text: str) -> Fraction:
    """A number as `123`, `1.5`, `.5`, `2e-3`."""
    _, _, exponent = text.lower().partition("e")
    # A long exponent is over the limit whatever its digits are: it is never converted.
    if len(exponent.lstrip("+-").lstrip("0")) > 4 or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise CannotEvaluate(f"the exponent of {text[:30]} is over {MAX_EXPONENT}")
    return _checked(Fraction(text))


def add(left: Fraction, right: Fraction) -> Fraction:
    """The sum."""
    return _checked(left + right)


def subtract(left: Fraction, right: Fraction) -> Fraction:
    """The difference."""
    return _checked(left - right)


def multiply(left: Fraction, right: Fraction) -> Fraction:
    """The product."""
    return _checked(left * right)


def divide(left: Fraction, right: Fraction) -> Fraction:
    """The quotient."""
    return _checked(left / _divisor(right))


def floor_divide(left: Fraction, right: Fraction) -> Fraction:
    """The quotient, rounded down."""
    return _checked(Fraction(left // _divisor(right)))


def remainder(left: Fraction, right: Fraction) -> Fraction:
    """What `floor_divide` leaves: it has the sign of the divisor."""
    return _checked(left % _divisor(right))


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """Exact where it is a fraction that fits, else to 40 digits."""
    if base == 0 and exponent < 0:
        raise CannotEvaluate("zero has no negative power")
    if exponent == 0 or base == 1:
        return Fraction(1)
    if base == 0:
        return base
    top, bottom = math.log2(abs(base.numerator)), math.log2(base.denominator)
    if base != -1 and (abs(exponent) > _HUGE or abs(top - bottom) * float(abs(exponent)) > MAX_BITS):
        raise CannotEvaluate("the power is too large")
    if exponent.denominator != 1:
        return _inexact_power(base, exponent)
    if base == -1:
        return Fraction(-1 if exponent.numerator % 2 else 1)
    if max(top, bottom) * float(abs(exponent)) > MAX_BITS:
        magnitude = _inexact_power(abs(base), exponent)
        return -magnitude if base < 0 and exponent.numerator % 2 else magnitude
    return _checked(Fraction(base**exponent.numerator))


def square_root(value: Fraction) -> Fraction:
    """Exact where the root is a fraction."""
    if value < 0:
        raise CannotEvaluate("a negative number has no real square root")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return _checked(Fraction(_FORTY_DIGITS.sqrt(_decimal(value))))


def round_to(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    """To a number of decimal places, halves to even."""
    if digits.denominator != 1 or abs(digits) > MAX_EXPONENT:
        raise CannotEvaluate("the number of places must be a small integer")
    return _checked(Fraction(round(value, digits.numerator)))


def _inexact_power(base: Fraction, exponent: Fraction) -> Fraction:
    if base < 0:
        raise CannotEvaluate("a negative number has a real power only for an integer exponent")
    with localcontext(_FORTY_DIGITS):
        return _checked(Fraction(_decimal(base) ** _decimal(exponent)))


def _decimal(value: Fraction) -> Decimal:
    return _FORTY_DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def _divisor(value: Fraction) -> Fraction:
    if value == 0:
        raise CannotEvaluate("division by zero")
    return value


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise CannotEvaluate("a number in it is too large, or has too many digits")
    return value
