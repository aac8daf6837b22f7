"""cumsum and cummax, against TensorFlow and NumPy, and what they send."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 12, 2))
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols"]


def running_maximum(x: tf.Tensor, axis: int, reverse: bool) -> tf.Tensor:
    """By the place of the first maximum, so that its gradient goes there."""
    x = tf.reverse(x, [axis]) if reverse else x
    columns = [tf.gather(x, range(i + 1), axis=axis) for i in range(x.shape[axis])]
    picked = [tf.gather(c, tf.argmax(c, axis), axis=axis, batch_dims=0) if len(x.shape) == 1 else
              tf.reduce_sum(c * tf.one_hot(tf.argmax(c, axis), c.shape[axis], axis=axis, dtype=x.dtype), axis)
              for c in columns]  # fmt: skip
    y = tf.stack(picked, axis)
    return tf.reverse(y, [axis]) if reverse else y


@pytest.mark.parametrize(
    ("exclusive", "reverse"), sharpest(itertools.product([False, True], repeat=2), [(False, False), (True, True)])
)
def test_cumsum_and_its_gradients(agrees: Any, exclusive: bool, reverse: bool) -> None:
    agrees(
        lambda x: mtf.cumsum(x, "b", exclusive, reverse),
        lambda x: tf.cumsum(x, 1, exclusive, reverse),
        {"x": ("a:4 b:12 c:2", X)},
        LAYOUTS,
    )


@pytest.mark.parametrize(
    ("values", "reverse"),
    sharpest(itertools.product(["distinct", "ties"], [False, True]), [("distinct", False), ("ties", True)]),
)
def test_cummax_and_its_gradients(agrees: Any, values: str, reverse: bool) -> None:
    x = X if values == "distinct" else RNG.integers(-1, 2, X.shape).astype(np.float64)
    agrees(
        lambda x: mtf.cummax(x, "b", reverse),
        lambda x: running_maximum(x, 1, reverse),
        {"x": ("a:4 b:12 c:2", x)},
        LAYOUTS,
    )


@pytest.mark.parametrize("layout", ["", "n:rows", "n:rows+cols"])
def test_the_first_nan_has_the_gradients_of_all_maxima_behind_it(layout: str) -> None:
    """Seven elements on cores of four and of two, from both ends."""
    x = np.array([1.0, np.nan, 3.0, 2.0, np.nan, -np.inf, 0.5], np.float32)
    weights = np.arange(1.0, 8.0, dtype=np.float32)

    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor | None]:
        both = [mtf.cummax(x, "n", reverse) for reverse in (False, True)]
        return [*both, *(mtf.gradients([y], [x], [w])[0] for y in both)]

    inputs = {"x": ("n:7", x), "w": ("n:7", weights)}
    running, from_end, *slopes = interpret(program, inputs, "rows:2;cols:2", layout, max_padding=0.5).results
    np.testing.assert_array_equal(running, [1.0, *[np.nan] * 6])
    np.testing.assert_array_equal(from_end, [*[np.nan] * 5, 0.5, 0.5])
    np.testing.assert_array_equal(slopes[0], [1.0, 27.0, *[0.0] * 5])
    np.testing.assert_array_equal(slopes[1], [*[0.0] * 4, 15.0, 0.0, 13.0])


def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = RNG.standard_normal((12, 24))
    agrees_on_many_meshes(
        lambda x: [mtf.cumsum(x, "b"), mtf.cumsum(x, "a", True, True), mtf.cummax(x, "b")],
        lambda x: [tf.cumsum(x, 1), tf.cumsum(x, 0, True, True), running_maximum(x, 1, False)],
        {"x": ("a:12 b:24", x)},
    )


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32])
def test_dtypes_are_as_in_tensorflow(dtype: tf.DType) -> None:
    x = tf.cast(RNG.integers(-3, 4, (3, 8)), dtype)
    done = interpret(
        lambda x: [mtf.cumsum(x, "b"), mtf.cummax(x, "b")], {"x": ("a:3 b:8", x.numpy())}, "rows:2;cols:2", "b:rows"
    )
    total, top = (tf.cast(y, tf.float32) for y in done.results)
    assert [tf.as_dtype(y.dtype) for y in done.results] == [dtype, dtype]
    np.testing.assert_array_equal(total, tf.cumsum(tf.cast(x, tf.float32), 1))
    np.testing.assert_array_equal(top, np.maximum.accumulate(tf.cast(x, tf.float32).numpy(), 1))


def test_cumsum_of_complex_numbers() -> None:
    x = RNG.standard_normal(8) + 1j * RNG.standard_normal(8)
    done = interpret(lambda x: mtf.cumsum(x, "b"), {"x": ("b:8", x)}, "rows:2;cols:2", "b:cols+rows")
    assert_close(done.results, np.cumsum(x), terms=8)


def test_infinities() -> None:
    inf = np.inf
    x = np.array([-inf, -inf, -inf, 1.0, inf, 2.0, -inf, inf])

    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.cummax(x, "b")
        return [y, mtf.cumsum(mtf.slice(x, 0, 4, "b"), "b"), *mtf.gradients([y], [x])]

    for layout in ("", "b:rows", "b:cols+rows"):
        top, total, gradient = interpret(program, {"x": ("b:8", x)}, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(top, np.maximum.accumulate(x))
        np.testing.assert_array_equal(total, [-inf] * 4)
        np.testing.assert_array_equal(gradient, [3, 0, 0, 1, 4, 0, 0, 0])


@pytest.mark.parametrize(("layout", "cores"), [("b:rows+cols", 8), ("b:cols", 4), ("b:cols;a:rows", 4)])
def test_each_core_sends_the_total_of_its_slice(layout: str, cores: int) -> None:
    for ours in (mtf.cumsum, mtf.cummax):
        planned = plan(lambda x, ours=ours: ours(x, "b"), {"x": mtf.TensorSpec("a:6 b:64", tf.float32)},
                       "rows:2;cols:4", layout)  # fmt: skip
        one_total = 4 * (3 if "a:" in layout else 6)
        assert [c.input.slice_bytes for c in planned.collectives] == [one_total]
        sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
        assert sent == one_total * (cores - 1)


@pytest.mark.parametrize(("layout", "cores"), [("b:rows+cols", 8), ("b:cols;a:rows", 4)])
def test_the_gradient_of_cummax_sends_totals_as_well(layout: str, cores: int) -> None:
    """The maximum of each slice and its place; then the sum that is for what stands before, and its place."""

    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.cummax(x, "b")
        return mtf.gradients(y, [x], [mtf.sin(x)])

    planned = plan(program, {"x": mtf.TensorSpec("a:6 b:64", tf.float32)}, "rows:2;cols:4", layout)
    one_total = 4 * (3 if "a:" in layout else 6)
    assert [c.input.slice_bytes for c in planned.collectives] == [one_total] * 4
    assert {c.step.kind for c in planned.collectives} == {"all_gather"}
    assert {c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives} == {
        one_total * (cores - 1)
    }


@pytest.mark.parametrize("reverse", [False, True])
def test_of_sizes_that_do_not_divide_totals_are_sent_and_padding_is_no_maximum(reverse: bool) -> None:
    """On cores with padding, and with nothing else; of rows that end in the lowest number, or are all of it."""

    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.cummax(x, "b", reverse=reverse)
        return [mtf.cumsum(x, "b", reverse=reverse), y, *mtf.gradients(y, [x], [mtf.exp(mtf.minimum(x, 0.0)) + 1.0])]

    x = RNG.standard_normal((3, 9))
    x[1, 6:], x[2] = -np.inf, -np.inf
    inputs = {"x": ("a:3 b:9", x)}
    alone = interpret(program, inputs, "rows:1").results
    for layout in ("b:rows", "b:rows;a:cols"):
        found = interpret(program, inputs, "rows:7;cols:2", layout, max_padding=0.5).results
        assert_close(found[0], alone[0], terms=9)
        for ours, wanted in zip(found[1:], alone[1:], strict=True):
            np.testing.assert_array_equal(ours, wanted)
    planned = plan(program, {"x": mtf.TensorSpec("a:3 b:9")}, "rows:4", "b:rows")
    assert {(c.step.kind, c.input.slice_bytes) for c in planned.collectives} == {("all_gather", 3 * 4)}


@pytest.mark.parametrize("layout", ["", "n:rows", "m:rows"])
def test_of_no_elements(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        ys = [mtf.cumsum(x, "n"), mtf.cummax(x, "n"), mtf.cummax(x, "n", reverse=True)]
        return [*ys, *(mtf.gradients([mtf.square(y)], [x])[0] for y in ys)]

    for result in interpret(program, {"x": ("m:2 n:0", np.zeros([2, 0]))}, "rows:2", layout).results:
        assert result.shape == (2, 0)


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        return [mtf.square(mtf.cumsum(x, "b", True)), mtf.cummax(x, "b"), mtf.cummax(x, "b", reverse=True)]

    inputs = {"x": ("a:4 b:8", RNG.standard_normal((4, 8)))}
    assert_layout_invariant(program, inputs, ["b:cols+rows"])


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 length:8")
    for ours in (mtf.cumsum, mtf.cummax):
        with pytest.raises(ShapeError, match=r'no dimension "lenght" .*; did you mean "length"'):
            ours(x, "lenght")
        with pytest.raises(ShapeError, match=r"has size 8 in .*, not 9"):
            ours(x, ("length", 9))
        with pytest.raises(DtypeError, match=r"bool has no"):
            ours(mtf.greater(x, 0.0), "length")
