"""Computes the value of an arithmetic expression, which is parsed and never run as a program."""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
from collections.abc import Callable
from fractions import Fraction

LONGEST_EXPRESSION = 200
_LARGEST = 10**50

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclasses.dataclass(frozen=True)
class Calculator:
    """A `Tool` that computes expressions of numbers, + - * / and parentheses, exactly.

    A query has no answer if it is no such expression, has over 200 characters, divides by zero, or exceeds 10^50.

    Examples:
      >>> Calculator().answers("(17 + 25) / 4")
      ['(17 + 25) / 4 = 10.5']
      >>> Calculator().answers("__import__('os')")
      []
    """

    name: str = dataclasses.field(default="calculator", init=False)

    def answers(self, query: str) -> list[str]:
        value = evaluated(query)
        return [] if value is None else [f"{query.strip()} = {value}"]


def evaluated(expression: str) -> str | None:
    """The value of an expression, or None if it has none."""
    if len(expression) > LONGEST_EXPRESSION:
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _written(_value(tree.body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            value = Fraction(str(number))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand) * (-1 if isinstance(sign, ast.USub) else 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            value = _BINARY[type(op)](_value(left), _value(right))
        case _:
            raise ValueError("no arithmetic")
    if abs(value) > _LARGEST:
        raise ValueError("too large")
    return value


def _written(value: Fraction) -> str:
    """An integer in full, and another number with 10 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("too large")
    return f"{number:.10g}"
