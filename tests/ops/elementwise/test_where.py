"""Nothing of a branch that is not taken leaks: not into the result, and not into gradients of any order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

Function = Callable[[mtf.Tensor], mtf.Tensor]

# Of positive numbers; elsewhere, or its slope there, infinite or NaN. With the first and the second derivative.
FUNCTIONS: dict[str, tuple[Function, Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "sqrt": (mtf.sqrt, lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5),
    "rsqrt": (mtf.rsqrt, lambda x: -0.5 * x**-1.5, lambda x: 0.75 * x**-2.5),
    "log": (mtf.log, lambda x: 1 / x, lambda x: -1 / x**2),
    "log1p": (lambda x: mtf.log1p(x - 1.0), lambda x: 1 / x, lambda x: -1 / x**2),
    "reciprocal": (mtf.reciprocal, lambda x: -1 / x**2, lambda x: 2 / x**3),
    "divide": (lambda x: (x + 1.0) / x, lambda x: -1 / x**2, lambda x: 2 / x**3),
    "x / x": (lambda x: x / x, np.zeros_like, np.zeros_like),
    "pow": (lambda x: x**0.5, lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5),
    "x ** x": (
        lambda x: mtf.pow(x, x),
        lambda x: x**x * (np.log(x) + 1),
        lambda x: x**x * ((np.log(x) + 1) ** 2 + 1 / x),
    ),
    "x log x": (lambda x: x * mtf.log(x), lambda x: np.log(x) + 1, lambda x: 1 / x),
    "square": (lambda x: mtf.square(mtf.log(x)), lambda x: 2 * np.log(x) / x, lambda x: 2 * (1 - np.log(x)) / x**2),
    "abs": (lambda x: mtf.abs(mtf.log(x)), lambda x: np.sign(np.log(x)) / x, lambda x: -np.sign(np.log(x)) / x**2),
    "exp": (
        lambda x: mtf.exp(1.0 / x),
        lambda x: -np.exp(1 / x) / x**2,
        lambda x: np.exp(1 / x) * (1 / x**4 + 2 / x**3),
    ),
    "tanh": (
        lambda x: mtf.tanh(mtf.log(x)),
        lambda x: 4 * x / (x**2 + 1) ** 2,
        lambda x: 4 * (1 - 3 * x**2) / (x**2 + 1) ** 3,
    ),
}
X = np.array([0.0, -0.0, -1.0, -np.inf, np.nan, 0.5, 2.0, 3.0])
IS_TAKEN = X > 0


@pytest.mark.parametrize("layout", ["", "n:cores"])
def test_nothing_of_the_branch_not_taken_leaks(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[list[mtf.Tensor]]:
        found = []
        for function, _, _ in FUNCTIONS.values():
            y = mtf.where(x > 0.0, function(x), 0.0)
            (first,) = mtf.gradients([y], [x])
            found.append([y, first, *mtf.gradients([first], [x])])
        return found

    results = interpret(program, {"x": ("n:8", X)}, "cores:2", layout).results
    for (name, (_, *derivatives)), (y, *ours) in zip(FUNCTIONS.items(), results, strict=True):
        np.testing.assert_array_equal(y[~IS_TAKEN], 0.0, name)
        for order, (own, exact) in enumerate(zip(ours, derivatives, strict=True), 1):
            expected = np.zeros_like(X)
            expected[IS_TAKEN] = exact(X[IS_TAKEN])
            np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12, err_msg=f"{name}, derivative {order}")


def test_a_choice_of_operands_keeps_sums_of_products_clean() -> None:
    """What an infinity is summed with, 0 times it, is NaN: so it is left out before, as docs/operations.md says."""
    x = np.array([[1.0, 0.0], [2.0, 4.0]])

    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        is_positive = x > 0.0
        once = mtf.where(is_positive, mtf.log(x) * w, 0.0)
        twice = mtf.where(is_positive, mtf.log(mtf.where(is_positive, x, 1.0)) * w, 0.0)
        return [mtf.gradients([y], [w])[0] for y in (once, twice)]

    leaky, clean = interpret(program, {"x": ("rows:2 n:2", x), "w": ("n:2", np.ones(2))}, "cores:1").results
    np.testing.assert_array_equal(np.isnan(leaky), [False, True])
    np.testing.assert_allclose(clean, [np.log(2.0), np.log(4.0)])
