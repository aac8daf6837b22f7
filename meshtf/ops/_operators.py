"""The operations that Python's operators call."""

from __future__ import annotations

from meshtf.ops.algebra.arithmetic import add, divide, multiply, negative, sub
from meshtf.ops.elementwise.comparisons import (
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
)
from meshtf.ops.elementwise.complex_numbers import abs
from meshtf.ops.elementwise.remainders_powers_extrema import floordiv, mod, pow
from meshtf.tensor_operators import register_operators


def register() -> None:
    """Lets tensors be added, compared and so on with Python's operators."""
    register_operators(
        abs=abs,
        add=add,
        divide=divide,
        floordiv=floordiv,
        greater=greater,
        greater_equal=greater_equal,
        less=less,
        less_equal=less_equal,
        logical_and=logical_and,
        logical_not=logical_not,
        logical_or=logical_or,
        logical_xor=logical_xor,
        mod=mod,
        multiply=multiply,
        negative=negative,
        pow=pow,
        sub=sub,
    )
