"""Sums, products and quotients with a scalar operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret

X = mtf.placeholder(mtf.Mesh(mtf.Graph()), "rows:2 cols:4", name="x")
ARRAY = np.arange(1.0, 9.0, dtype=np.float32).reshape(2, 4)
WIDER = "copies:2 cols:4 rows:2"

ON_EITHER_SIDE = [
    lambda x, shape: mtf.add(x, 2.0, shape),
    lambda x, shape: mtf.add(2.0, x, shape),
    lambda x, shape: mtf.sub(x, 2.0, shape),
    lambda x, shape: mtf.sub(2.0, x, shape),
    lambda x, shape: mtf.multiply(x, 2.0, shape),
    lambda x, shape: mtf.multiply(2.0, x, shape),
    lambda x, shape: mtf.divide(x, 2.0, shape),
    lambda x, shape: mtf.divide(2.0, x, shape),
]

WithScalar = Callable[..., mtf.Tensor]


@pytest.mark.parametrize("with_scalar", ON_EITHER_SIDE)
def test_output_shape_with_a_scalar(with_scalar: WithScalar) -> None:
    """It orders, and adds dimensions; the gradient is summed over what was added."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        plain, shaped = with_scalar(x, None), with_scalar(x, WIDER)
        grads = [mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])[0] for y in (plain, shaped)]
        assert (shaped.shape, grads[1].shape) == (mtf.convert_to_shape(WIDER), x.shape)
        return [plain, shaped, *grads]

    plain, shaped, grad, shaped_grad = interpret(program, {"x": ("rows:2 cols:4", ARRAY)}, "all:2", "rows:all").results
    np.testing.assert_array_equal(shaped, [plain.T, plain.T])
    np.testing.assert_array_equal(shaped_grad, 2 * grad)


def test_output_shape_with_a_scalar_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        total = mtf.reduce_sum(mtf.square(x), reduced_dim="cols")  # pending over the axis that splits cols
        return [f(x, WIDER) for f in ON_EITHER_SIDE] + [mtf.multiply(total, 2.0, "copies:2 rows:2")]

    assert_layout_invariant(program, {"x": ("rows:2 cols:4", ARRAY)}, ["cols:rows", "copies:cols"])


@pytest.mark.parametrize("with_scalar", ON_EITHER_SIDE)
def test_an_output_shape_that_lacks_a_dimension(with_scalar: WithScalar) -> None:
    with pytest.raises(ShapeError) as caught:
        with_scalar(X, "rows:2 colls:4")
    assert 'no dimension "cols" in [rows:2 colls:4]; did you mean "colls"?' in str(caught.value)
    assert f"\n    x [rows:2 cols:4] float32\n  at {__file__}:" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "scalar", "divisors"),
    [
        (tf.float32, 1e38, [2e38, 3e38]),  # the reciprocals are 0 where small numbers count as 0
        (tf.float32, 41.0, [41.0, 47.0]),
        (tf.float16, 1e-3, [1e-5, 2e-5]),  # the reciprocals are infinite
        (tf.float16, 60000.0, [60000.0, 40000.0]),  # the reciprocals have few digits
        (tf.complex64, 41.0 + 1.0j, [41.0 + 1.0j, 2.0j]),
    ],
)
def test_a_scalar_over_a_tensor_is_rounded_once(dtype: tf.DType, scalar: complex, divisors: list[complex]) -> None:
    array = np.array(divisors, dtype.as_numpy_dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = scalar / x
        return [y, mtf.gradients([mtf.reduce_sum(y)], [x])[0]]

    y, grad = interpret(program, {"x": ("n:2", array)}, "all:2", "n:all").results
    wide = array.astype(np.complex128 if dtype.is_complex else np.float64)
    number = array.dtype.type(scalar).astype(wide.dtype)
    rounding = 4 * np.finfo(array.dtype).eps
    np.testing.assert_allclose(y, (number / wide).astype(array.dtype), rtol=rounding if dtype.is_complex else 0)
    with np.errstate(over="ignore"):
        expected = np.conj(-number / wide**2).astype(array.dtype)
    np.testing.assert_allclose(grad, expected, rtol=rounding, atol=1e-7)


def test_the_sum_of_no_tensors_is_the_number_0() -> None:
    """As in Mesh TensorFlow, so that a loss may be added to those that a model has beside it, if it has any."""
    assert mtf.add_n([]) == 0
    assert (X + mtf.add_n([])).shape == X.shape
    assert mtf.add_n([X]) is X


@pytest.mark.parametrize(("mesh_shape", "layout"), [("a:1", ""), ("a:2", "batch:a"), ("a:2", "hidden:a")])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_many_narrow_tensors_are_rounded_once(dtype: tf.DType, mesh_shape: str, layout: str) -> None:
    """In bfloat16 256 + 1 is 256; and the gradient of what is used in 301 places is the sum of as many."""
    x = np.array([[1.0, 2.0]] * 2, dtype.as_numpy_dtype)
    term = lambda x: mtf.reduce_sum(x, reduced_dim="batch") * 0.5  # noqa: E731

    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        total = mtf.add_n([x] * 301)
        assert isinstance(total, mtf.Tensor)
        terms = mtf.add_n([term(x)] * 301)
        return [total, terms, *mtf.gradients([total, *([mtf.reduce_sum(x)] * 10)], [x])]  # type: ignore[list-item]

    inputs = {"x": (mtf.Shape([("batch", 2), ("hidden", 2)]), x)}
    total, terms, gradient = interpret(program, inputs, mesh_shape, layout).results
    assert_close(total, 301 * x.astype(np.float64), terms=1, dtype=dtype)
    assert_close(terms, 301 * x[0].astype(np.float64), terms=1, dtype=dtype)
    assert_close(gradient, np.full([2, 2], 311.0), terms=2, dtype=dtype)
