from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.reductions.sum_of_squares import SquaresAtScales, root_of_squares, sum_of_squares
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

LAYERS, ROWS, COLS = mtf.Dimension("layers", 2), mtf.Dimension("rows", 6), mtf.Dimension("cols", 4)
X = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)


@pytest.mark.parametrize("layout", ["", "rows:a", "rows:a;cols:b", "layers:a;rows:b"])
@pytest.mark.parametrize("kept", [(), ("layers",), ("cols", "layers")])
def test_value_and_gradient(kept: tuple[str, ...], layout: str) -> None:
    shape = mtf.Shape([{"layers": LAYERS, "cols": COLS}[name] for name in kept])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = root_of_squares(sum_of_squares(x, shape))
        (grad,) = mtf.gradients([mtf.reduce_sum(y)], [x])
        return [y, grad]

    inputs = {"x": (mtf.Shape([LAYERS, ROWS, COLS]), X)}
    y, grad = interpret(program, inputs, "a:2;b:2", layout).results
    letters = "".join(name[0] for name in kept)
    expected = np.sqrt(np.einsum(f"lrc,lrc->{letters}", X, X))
    assert_close(y, expected, terms=(X.size, FUNCTION_TERMS))
    assert_close(grad, np.einsum(f"lrc,{letters}->lrc", X, 1 / expected), terms=(X.size, 2 * FUNCTION_TERMS))


def test_a_sum_that_is_pending_is_done_first() -> None:
    """The squares of terms are not those of their sum."""
    inputs = {"x": (mtf.Shape([LAYERS, ROWS, COLS]), X)}

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return root_of_squares(sum_of_squares(mtf.reduce_sum(x, reduced_dim=ROWS), mtf.Shape([])))

    y = interpret(program, inputs, "a:2", "rows:a").results
    assert_close(y, np.linalg.norm(X.sum(1)), terms=(2 * 6, 8, FUNCTION_TERMS))


@pytest.mark.parametrize("layout", ["", "rows:a", "rows:b", "cols:b"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_are_right_where_squares_are_not(dtype: type, layout: str) -> None:
    """Of each row, which has a size of its own; of all of them; and of two tensors."""
    info = np.finfo(dtype)
    sizes = np.array([info.max / 64, np.sqrt(info.max) * 2, 1.0, np.sqrt(info.tiny), info.tiny * 4, 0.0])
    rows = ((1.0 + np.abs(X[0])) * sizes[:, None]).astype(dtype)
    small = np.full([6, 4], info.tiny * 4, dtype)

    def program(rows: mtf.Tensor, small: mtf.Tensor) -> list[mtf.Tensor]:
        each, of_all, of_small = (
            sum_of_squares(x, shape)
            for x, shape in ((rows, mtf.Shape([ROWS])), (rows, mtf.Shape([])), (small, mtf.Shape([])))
        )
        return [root_of_squares(sums) for sums in (each, of_all, of_small, of_all + of_small, of_small + of_small)]

    shape = mtf.Shape([ROWS, COLS])
    results = interpret(program, {"rows": (shape, rows), "small": (shape, small)}, "a:2;b:4", layout).results
    lengths = np.sqrt((rows.astype(np.longdouble) ** 2).sum(1))
    of_all, of_small = np.sqrt((lengths**2).sum()), np.sqrt(np.longdouble(24)) * small[0, 0]
    expected = [*lengths, of_all, of_small, of_all, of_small * np.sqrt(2)]
    actual = [*results[0], *results[1:]]
    for length, wanted in zip(actual, expected, strict=True):
        assert_close(length, np.asarray(wanted, dtype), terms=(48, 2 * FUNCTION_TERMS))


@pytest.mark.parametrize("size", [1.0, 1e20, 1e-30, np.nan, np.inf])
def test_processors_leave_out_only_what_is_not_needed(size: float) -> None:
    x = tf.fill([1 << 15], tf.constant(size, tf.float32))
    sums = [work(None, x).numpy() for work in (SquaresAtScales((0,), ()), SquaresAtScales((0,), ()).on_processors)]
    if size == 1.0:
        np.testing.assert_array_equal(sums[1], [0.0, sums[0][1], 0.0])
    else:
        np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("number", [0.0, 1e-30, 3.0, -1e30, np.inf])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2,)], ids=str)
def test_xla_does_not_square_the_scales(shape: tuple[int, ...], number: float) -> None:
    """Of a single element, it would multiply the factors of both scales first: 0 times infinity is NaN."""
    work = SquaresAtScales(tuple(range(len(shape))), ())
    x = np.full(shape, number, np.float32)
    compiled = tf.function(lambda x: work(None, x), jit_compile=True, autograph=False)
    found = compiled(tf.constant(x)).numpy()
    with np.errstate(over="ignore"):
        expected = [np.sum(np.square(x * np.float32(2.0**n))) for n in (-96, 0, 80)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
