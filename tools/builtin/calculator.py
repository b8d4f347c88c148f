"""The calculator: exact arithmetic over fractions, bounded in every direction. The grammar is in `arithmetic`."""

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from tenuto.tools.builtin.answers import failure, no_such_tool, tool
from tenuto.tools.builtin.arithmetic import CannotEvaluate, evaluate
from tenuto.tools.spec import CallContext, Tool, ToolResult

_TEN_DIGITS = Context(prec=10)


class Calculator:
    """The built-in server `calculator`."""

    name = "calculator"

    def __init__(self) -> None:
        self._tools = [tool("evaluate", "Evaluate an arithmetic expression", ("expression",))]

    async def list(self) -> list[Tool]:
        """The one tool."""
        return list(self._tools)

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:  # noqa: ARG002
        """Evaluate an expression; one that cannot be evaluated is an error result that says where."""
        if name != "evaluate":
            return no_such_tool(self.name, name, self._tools)
        try:
            return ToolResult(number_text(evaluate(arguments["expression"])))
        except CannotEvaluate as exc:
            return failure(str(exc))


def number_text(value: Fraction) -> str:
    """An integer exactly, anything else to 10 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    rounded = _TEN_DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))
    rounded = rounded.normalize(_TEN_DIGITS)
    if -7 < rounded.adjusted() < 10:
        return f"{rounded:f}"
    return f"{rounded:e}"
