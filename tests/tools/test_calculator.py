"""The calculator agrees with Python's fractions wherever both have a value, and refuses what is too large at once."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.tools.builtin import Calculator
from tenuto.tools.builtin.arithmetic import CannotEvaluate, evaluate
from tenuto.tools.builtin.calculator import number_text
from tenuto.tools.spec import CallContext, ToolResult

CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


async def calculate(expression: str) -> ToolResult:
    return await Calculator().call("evaluate", {"expression": expression}, CONTEXT)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 * 23", "391"),
        ("-12345 + 100", "-12245"),
        ("1/3", "0.3333333333"),
        ("0.1 + 0.2", "0.3"),
        ("2 ** 0.5", "1.414213562"),
        ("sqrt(2) ** 2", "2"),
        ("sqrt(9/4)", "1.5"),
        ("8 ** (1/3)", "2"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("2 ^ 3 ^ 2", "512"),
        ("3 - -2", "5"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7 x 6", "42"),
        ("2x3", "6"),
        ("7 × 6 ÷ 4", "10.5"),
        ("5 − 3", "2"),
        ("1,234,567.5 * 2", "2469135"),
        ("max(1,200)", "200"),
        ("max((1,000), 2)", "1000"),
        ("round(2.567, 2) + round(5/2)", "4.57"),
        ("min(3, 1, 2) + abs(-4)", "5"),
        ("1.5e3 + .5 + 2.", "1502.5"),
        ("2 ** 200", str(2**200)),
        ("(1 + 0.05/365) ** 3650", "1.648664814"),
        ("1e-20", "1e-20"),
        ("12345678901.5", "1.23456789e+10"),
    ],
)
async def test_what_people_and_models_write_has_its_value(expression: str, value: str) -> None:
    assert await calculate(expression) == ToolResult(value)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("1/0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "no negative power"),
        ("sqrt(-1)", "no real square root"),
        ("(-8) ** 0.5", "real power only for an integer"),
        ("", "a number was expected at the end"),
        ("1 +", "a number was expected at the end"),
        ("(1", "')' was expected at the end"),
        ("1)", "an operator was expected at character 2"),
        ("12,34", "an operator was expected at character 3"),
        ("1,0000", "an operator was expected at character 2"),
        ("2(3)", "an operator was expected at character 2"),
        ("1 000", "an operator was expected at character 3"),
        ("__import__('os')", "a number was expected at character 1"),
        ("exec(1)", "'exec' is not known; the functions are sqrt, abs, round, min, max"),
        ("sqrt 4", "in parentheses"),
        ("sqrt(1, 2)", "takes 1 arguments"),
        ("50%", "for a percentage divide by 100"),
        ("50% + 1", "for a percentage divide by 100"),
        ("0x10", "decimal"),
        ("２ + 2", "a number was expected at character 1"),
    ],
)
async def test_what_has_no_value_is_an_error_that_says_why(expression: str, told: str) -> None:
    result = await calculate(expression)
    assert result.is_error
    assert result.text.startswith("Error: ")
    assert told in result.text


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9**9",
        "10**-999999999",
        "1e999999",
        "1e" + "9" * 900,
        "1e1000 ** 1000",
        "1.0000001 ** (10 ** 400)",
        "*".join(["9" * 90] * 11),
        "*".join(["1e900"] * 100),
        "(" * 400 + "1" + ")" * 400,
        "-" * 900 + "1",
        "2**" * 300 + "1",
        "1" * 1001,
        "round(1, 1e900)",
    ],
)
@pytest.mark.timeout(5)
async def test_what_is_too_large_is_refused_before_it_is_computed(expression: str) -> None:
    result = await calculate(expression)
    if expression.startswith("9" * 90):
        assert not result.is_error  # 990 digits are well within the bounds
    else:
        assert result.is_error
        assert len(result.text) < 200


@dataclass(frozen=True)
class Written:
    """An expression and, by Python's own arithmetic, its value."""

    text: str
    value: Fraction


def numbers() -> st.SearchStrategy[Written]:
    integers = st.integers(0, 10**6).map(lambda n: Written(str(n), Fraction(n)))
    grouped = st.integers(0, 10**9).map(lambda n: Written(f"{n:,}", Fraction(n)))
    decimals = st.decimals(0, 10**4, places=3).map(lambda d: Written(str(d), Fraction(d)))
    return integers | grouped | decimals


def combined(children: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    blanks = st.sampled_from(["", " ", "  "])

    def binary(left: Written, operator: str, right: Written, blank: str) -> Written:
        text = f"({left.text}){blank}{operator}{blank}({right.text})"
        match operator:
            case "+":
                return Written(text, left.value + right.value)
            case "-":
                return Written(text, left.value - right.value)
            case "*" | "×":
                return Written(text, left.value * right.value)
        if right.value == 0:
            return left
        match operator:
            case "/" | "÷":
                return Written(text, left.value / right.value)
            case "//":
                return Written(text, Fraction(left.value // right.value))
        return Written(text, left.value % right.value)

    operators = st.sampled_from(["+", "-", "*", "×", "/", "÷", "//", "%"])
    negated = children.map(lambda child: Written(f"-({child.text})", -child.value))
    absolute = children.map(lambda child: Written(f"abs({child.text})".replace(",", ""), abs(child.value)))
    powered = st.builds(lambda child, n: Written(f"({child.text}) ** {n}", child.value**n), children, st.integers(0, 3))
    return st.builds(binary, children, operators, children, blanks) | negated | absolute | powered


@given(st.recursive(numbers(), combined, max_leaves=12).filter(lambda each: len(each.text) <= 1000))
def test_every_expression_has_the_value_that_python_gives_it(written: Written) -> None:
    """Exactly, except where a number grew beyond the bounds, which may only be refused."""
    try:
        value = evaluate(written.text)
    except CannotEvaluate as refusal:
        value, told = None, str(refusal)
        fits = "large" not in told and "nested" not in told
    else:
        fits = True
    assert value == written.value or not fits


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 99)), max_size=30), st.integers(0, 99))
def test_precedence_and_grouping_are_python_s(rest: list[tuple[str, int]], first: int) -> None:
    text = str(first) + "".join(f" {operator} {n}" for operator, n in rest)
    exact = "".join(f" {operator} Fraction({n})" for operator, n in rest)
    assert evaluate(text) == eval(f"Fraction({first}){exact}", {"Fraction": Fraction})


@given(st.text(max_size=60) | st.text(alphabet="0123456789.,+-*/%^()xe ", max_size=60))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    try:
        value = evaluate(text)
    except CannotEvaluate:
        return
    assert isinstance(value, Fraction)


@given(st.fractions())
def test_a_result_is_right_to_ten_digits(value: Fraction) -> None:
    shown = Fraction(Decimal(number_text(value)))
    assert abs(shown - value) * 10**9 * 2 <= abs(value)
    if value.denominator == 1:
        assert shown == value
