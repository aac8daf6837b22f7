from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.ops.reductions.sum_of_squares import sum_of_squares
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

LAYERS, ROWS, COLS = mtf.Dimension("layers", 2), mtf.Dimension("rows", 6), mtf.Dimension("cols", 4)
X = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)


@pytest.mark.parametrize("layout", ["", "rows:a", "rows:a;cols:b", "layers:a;rows:b"])
@pytest.mark.parametrize("kept", [(), ("layers",), ("cols", "layers")])
def test_value_and_gradient(kept: tuple[str, ...], layout: str) -> None:
    shape = mtf.Shape([{"layers": LAYERS, "cols": COLS}[name] for name in kept])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = sum_of_squares(x, shape)
        (grad,) = mtf.gradients([mtf.reduce_sum(mtf.sqrt(y))], [x])
        return [y, grad]

    inputs = {"x": (mtf.Shape([LAYERS, ROWS, COLS]), X)}
    y, grad = interpret(program, inputs, "a:2;b:2", layout).results
    letters = "".join(name[0] for name in kept)
    expected = np.einsum(f"lrc,lrc->{letters}", X, X)
    assert_close(y, expected, terms=X.size)
    assert_close(grad, np.einsum(f"lrc,{letters}->lrc", X, 1 / np.sqrt(expected)), terms=(X.size, 2 * FUNCTION_TERMS))


def test_a_sum_that_is_pending_is_done_first() -> None:
    """The squares of terms are not those of their sum."""
    inputs = {"x": (mtf.Shape([LAYERS, ROWS, COLS]), X)}

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return sum_of_squares(mtf.reduce_sum(x, reduced_dim=ROWS), mtf.Shape([]))

    y = interpret(program, inputs, "a:2", "rows:a").results
    assert_close(y, np.square(X.sum(1)).sum(), terms=(2 * 6, 8))
