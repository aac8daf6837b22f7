"""Derivatives of elementwise functions at zeros, kinks and infinities: limits where there are, else conventions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

Function = Callable[[mtf.Tensor], mtf.Tensor]
INF = np.inf

# Of functions at a number: the first and the second derivative.
EDGES: dict[str, tuple[Function, dict[float, tuple[float, float]]]] = {
    "sqrt": (mtf.sqrt, {0.0: (INF, -INF), INF: (0.0, 0.0)}),
    "rsqrt": (mtf.rsqrt, {0.0: (-INF, INF), INF: (0.0, 0.0)}),
    "log": (mtf.log, {0.0: (INF, -INF), INF: (0.0, 0.0)}),
    "log1p": (mtf.log1p, {-1.0: (INF, -INF), INF: (0.0, 0.0)}),
    "reciprocal": (mtf.reciprocal, {0.0: (-INF, INF), INF: (0.0, 0.0), -INF: (0.0, 0.0)}),
    "1 / x": (lambda x: 1.0 / x, {0.0: (-INF, INF), INF: (0.0, 0.0)}),
    "x ** 0": (lambda x: x**0, {0.0: (0.0, 0.0), 2.0: (0.0, 0.0)}),
    "x ** 1": (lambda x: x**1, {0.0: (1.0, 0.0), 2.0: (1.0, 0.0)}),
    "x ** 2": (lambda x: x**2, {0.0: (0.0, 2.0), -3.0: (-6.0, 2.0)}),
    "x ** 3": (lambda x: x**3, {0.0: (0.0, 0.0), -1.0: (3.0, -6.0)}),
    "x ** 0.5": (lambda x: x**0.5, {0.0: (INF, -INF)}),
    "exp": (mtf.exp, {-INF: (0.0, 0.0), INF: (INF, INF)}),
    "expm1": (mtf.expm1, {-INF: (0.0, 0.0), INF: (INF, INF)}),
    "tanh": (mtf.tanh, {-INF: (0.0, 0.0), INF: (0.0, 0.0)}),
    "sigmoid": (mtf.sigmoid, {-INF: (0.0, 0.0), INF: (0.0, 0.0)}),
    "softplus": (mtf.softplus, {-INF: (0.0, 0.0), INF: (1.0, 0.0)}),
    "erf": (mtf.erf, {-INF: (0.0, 0.0), INF: (0.0, 0.0)}),
    "elu": (mtf.elu, {-INF: (0.0, 0.0), 0.0: (1.0, 0.0)}),
    "relu": (mtf.relu, {0.0: (0.0, 0.0), -INF: (0.0, 0.0), INF: (1.0, 0.0)}),
    "squared_relu": (mtf.squared_relu, {0.0: (0.0, 0.0)}),
    "leaky_relu": (mtf.leaky_relu, {0.0: (float(np.float32(0.2)), 0.0)}),
    "abs": (mtf.abs, {0.0: (0.0, 0.0), INF: (1.0, 0.0), -INF: (-1.0, 0.0)}),
    "maximum": (lambda x: mtf.maximum(x, 0.0), {0.0: (1.0, 0.0)}),
    "maximum of the second": (lambda x: mtf.maximum(mtf.zeros_like(x), x), {0.0: (0.0, 0.0)}),
    "square": (mtf.square, {0.0: (0.0, 2.0)}),
}


def test_functions_at_their_edges() -> None:
    xs = np.array(sorted({x for _, numbers in EDGES.values() for x in numbers}))

    def program(x: mtf.Tensor) -> list[list[mtf.Tensor]]:
        firsts = [mtf.gradients([function(x)], [x])[0] for function, _ in EDGES.values()]
        seconds = [mtf.gradients([first], [x])[0] for first in firsts]
        return [[a, mtf.zeros_like(x) if b is None else b] for a, b in zip(firsts, seconds, strict=True)]

    results = interpret(program, {"x": (f"n:{xs.size}", xs)}, "one:1").results
    for (name, (_, numbers)), derivatives in zip(EDGES.items(), results, strict=True):
        for x, expected in numbers.items():
            place = np.flatnonzero(xs == x)[0]
            np.testing.assert_array_equal([y[place] for y in derivatives], expected, f"{name} at {x}")


@pytest.mark.parametrize(("dtype", "x"), [(np.float16, 4.45e-4), (np.float32, 1.9e-26)])
def test_a_slope_is_finite_if_its_dtype_can_hold_it(dtype: type, x: float) -> None:
    """rsqrt(x) / x may be infinite where half of it is not."""
    at = np.array([x], dtype)
    (slope,) = interpret(lambda x: mtf.gradients([mtf.rsqrt(x)], [x]), {"x": ("n:1", at)}, "one:1").results
    np.testing.assert_allclose(
        slope, (-0.5 * at.astype(np.float64) ** -1.5).astype(dtype), rtol=4 * np.finfo(dtype).eps
    )
