"""Second derivatives against finite differences of first ones, in float64, with the dimensions split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

ROWS, COLUMNS = mtf.Dimension("rows_dim", 4), mtf.Dimension("columns_dim", 8)
SHAPE = mtf.Shape([ROWS, COLUMNS])
GENERATOR = np.random.default_rng(0)
X, V, W = (GENERATOR.normal(size=(4, 8)) for _ in range(3))
STEP = 1e-5


def scanned(x: mtf.Tensor) -> mtf.Tensor:
    (y,), _ = mtf.scan(
        lambda c, p: ([mtf.tanh(c[0] * p[0] + c[0])], []), [mtf.reduce_sum(x, reduced_dim=ROWS)], [x], ROWS
    )
    return y


def convolved(x: mtf.Tensor) -> mtf.Tensor:
    signal = mtf.reshape(mtf.tanh(x), [ROWS, COLUMNS, ("channels", 1)])
    kernel = mtf.reshape(
        mtf.slice(mtf.rename_dimension(mtf.sin(x), "columns_dim", "taps"), 0, 3, "taps"), [ROWS, ("tap", 3)]
    )
    kernel = mtf.reshape(mtf.reduce_sum(kernel, reduced_dim=ROWS), [("tap", 3), ("channels", 1), ("filters", 1)])
    return mtf.conv1d(signal, kernel)


PROGRAMS: dict[str, Callable[[mtf.Tensor], mtf.Tensor]] = {
    "softmax": lambda x: mtf.softmax(x, COLUMNS),
    "logsumexp": lambda x: mtf.reduce_logsumexp(x * x, COLUMNS),
    "product": lambda x: mtf.einsum([mtf.tanh(x), mtf.rename_dimension(mtf.sin(x), "rows_dim", "other")]),
    "cumsum": lambda x: mtf.exp(mtf.cumsum(mtf.sin(x), COLUMNS)),
    "shift": lambda x: mtf.shift(mtf.sin(x), 3, COLUMNS, wrap=False) * x,
    "fft": lambda x: mtf.square(mtf.abs(mtf.rfft(x, COLUMNS, "half"))),
    "convolution": convolved,
    "scan": scanned,
    "recompute_grad": lambda x: mtf.recompute_grad(lambda y: mtf.tanh(y) * mtf.exp(y), x),
    "cond": lambda x: mtf.cond(mtf.greater(mtf.reduce_sum(x), -1e9), lambda: mtf.sin(x) * x, lambda: x)[0],
    "prod": lambda x: mtf.reduce_prod(x, reduced_dim=COLUMNS),
    "sort": lambda x: mtf.square(mtf.sort(x, COLUMNS)) * mtf.sin(x),
}


def gradient_along(fn: Callable[[mtf.Tensor], mtf.Tensor], second: bool) -> Callable[..., mtf.Tensor]:
    """The derivative of `sum(sin(fn(x)))` along v, or that derivative's along w."""

    def program(x: mtf.Tensor, v: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        y = mtf.reduce_sum(mtf.sin(fn(x)))
        (first,) = mtf.gradients(y, x)
        along = mtf.reduce_sum(first * v)
        return mtf.reduce_sum(mtf.gradients(along, x)[0] * w) if second else along

    return program


def value(program: Callable[..., mtf.Tensor], x: np.ndarray, layout: str) -> float:
    arrays = {"x": (SHAPE, x), "v": (SHAPE, V), "w": (SHAPE, W)}
    return float(interpret(program, arrays, "rows:2;cols:4", layout).results)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives_are_the_slopes_of_first_ones(name: str) -> None:
    first, second = (gradient_along(PROGRAMS[name], is_second) for is_second in (False, True))
    slope = (value(first, X + STEP * W, "") - value(first, X - STEP * W, "")) / (2 * STEP)
    # The difference itself errs, by STEP**2 times third derivatives of some thousands, far above rounding / STEP.
    for layout in ("rows_dim:rows;columns_dim:cols", "columns_dim:cols+rows"):
        assert value(second, X, layout) == pytest.approx(slope, rel=1e-6, abs=1e-7), layout


def test_the_programs_are_in_float64() -> None:
    assert tf.as_dtype(X.dtype) == tf.float64
