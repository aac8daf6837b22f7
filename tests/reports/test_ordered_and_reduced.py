"""Reports of other systems about orders, sums, windows, lookups, transforms and factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_close, interpret
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

NAN = np.nan


@pytest.mark.parametrize("place", range(4))
def test_where_a_nan_stands_changes_no_choice(place: int) -> None:
    """tensorflow/tensorflow#117287 and jax-ml/jax#4640: a NaN was chosen by its place; its index was 2^31 - 1."""
    numbers = np.insert(np.array([1.0, 3.0, 2.0]), place, NAN)
    kept = np.argsort(-numbers[~np.isnan(numbers)])
    places = np.flatnonzero(~np.isnan(numbers))[kept]

    def found(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.argmax(x, "n"), *mtf.top_k(x, "n", ("k", 3)), mtf.argsort(x, "n", "DESCENDING")]

    program = BuiltProgram(found, {"x": ("n:4", numbers)})
    for mesh, layout in (("rows:1", ""), ("rows:2", "n:rows"), ("rows:4", "n:rows")):
        first, values, indices, order = program.interpret(mesh, layout).results
        assert first == places[0]
        np.testing.assert_array_equal(values, [3, 2, 1])
        np.testing.assert_array_equal(indices, places)
        np.testing.assert_array_equal(order, [*places, place])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_the_ends_of_a_type_are_sorted_both_ways(dtype: Any) -> None:
    """pytorch/xla#865: a descending sort of -x left -128 first, since 128 is no int8."""
    info = np.iinfo(dtype)
    x = np.array([info.min, 100, info.max, 0, info.min, info.max], dtype)
    sort = lambda x: [mtf.sort(x, "n", d) for d in ("ASCENDING", "DESCENDING")]  # noqa: E731
    up, down = interpret(sort, {"x": ("n:6", x)}, "rows:2", "n:rows").results
    np.testing.assert_array_equal(up, np.sort(x))
    np.testing.assert_array_equal(down, np.sort(x)[::-1])


def test_0_and_minus_0_are_equal() -> None:
    """jax-ml/jax#2124: argsort put -0 before 0, and NumPy and TensorFlow do not."""
    x = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    program = BuiltProgram(lambda x: [mtf.argsort(x, "n"), mtf.argmax(x, "n")], {"x": ("n:4", x)})
    for mesh, layout in (("rows:1", ""), ("rows:4", "n:rows")):
        order, first = program.interpret(mesh, layout).results
        np.testing.assert_array_equal(order, [0, 1, 2, 3])
        assert first == 0


def test_a_reversed_running_sum_is_that_of_the_reverse() -> None:
    """tensorflow/tensorflow#4593: what `reverse` does to x that is reversed itself."""
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    sums = lambda x: [mtf.cumsum(mtf.reverse(x, "n"), "n"), mtf.cumsum(x, "n", reverse=True)]  # noqa: E731
    forward, back = interpret(sums, {"x": ("n:5", x)}, "rows:2", "n:rows").results
    np.testing.assert_array_equal(forward, [16, 24, 28, 30, 31])
    np.testing.assert_array_equal(back, forward[::-1])


def test_sums_of_integers_keep_their_type_and_means_are_refused() -> None:
    """NVIDIA/cudf#8449 and tensorflow/tensorflow#125978: the sum of int8 wraps around, which the docstring says."""
    x = np.full(200, 100, np.int8)
    sums = lambda x: [mtf.reduce_sum(x), mtf.reduce_sum(mtf.cast(x, tf.int32))]  # noqa: E731
    for mesh, layout in (("rows:1", ""), ("rows:4", "n:rows")):
        narrow, wide = interpret(sums, {"x": ("n:200", x)}, mesh, layout).results
        assert (narrow, wide) == (20000 % 256, 20000)
    with pytest.raises(DtypeError, match="the mean of int8 is not a int8"):
        mtf.reduce_mean(mtf.placeholder(mtf.Mesh(mtf.Graph()), "n:4", tf.int8))


def test_a_size_of_1_stands_for_no_other() -> None:
    """numpy/numpy#11548: einsum broadcast a dimension of size 1 over one of size 3, and summed."""
    mesh = mtf.Mesh(mtf.Graph())
    x, y = mtf.placeholder(mesh, "i:4 k:1"), mtf.placeholder(mesh, "j:3 k:3")
    with pytest.raises(ShapeError, match="k"):
        mtf.einsum([x, y], output_shape="i:4 j:3")


@pytest.mark.parametrize("size", [1, 2, 5, 6, 9, 10])
def test_real_transforms_come_back_in_the_same_size(size: int) -> None:
    """pytorch/pytorch#43475: ten numbers came back as eleven, since the half does not say which it was."""
    x = np.random.default_rng(size).normal(size=(2, size))

    def round_trip(x: mtf.Tensor) -> list[mtf.Tensor]:
        half = mtf.rfft(x, ["n"], half_dim="half")
        back = mtf.irfft(half, ["half"], size, whole_dim="n")
        power = mtf.reduce_sum(mtf.square(mtf.real(half)) + mtf.square(mtf.imag(half)))
        return [back, *mtf.gradients(mtf.reduce_sum(mtf.square(back)), [x]), *mtf.gradients(power, [x])]

    # The power of the half: each frequency but the first, and the last of an even size, stands for two.
    twice = np.fft.irfft(np.fft.rfft(x) * (1 + np.isin(np.arange(size // 2 + 1), [0, size / 2])), size)
    for mesh, layout in (("rows:1", ""), ("rows:2", "m:rows"), ("rows:2", "n:rows;half:rows")):
        if size % 2 and "n:" in layout:
            continue
        back, grad, by_power = interpret(round_trip, {"x": (f"m:2 n:{size}", x)}, mesh, layout, max_padding=0.9).results
        np.testing.assert_allclose(back, x, atol=1e-14)
        np.testing.assert_allclose(grad, 2 * x, atol=1e-13)
        np.testing.assert_allclose(by_power, size * twice, atol=1e-12)


@pytest.mark.parametrize(("size", "taps", "stride"), [(1, 3, 2), (2, 3, 2), (3, 1, 3), (5, 2, 2), (8, 3, 4), (7, 4, 3)])
def test_windows_of_the_same_size_are_padded_as_tensorflow_says(size: int, taps: int, stride: int) -> None:
    """tensorflow/tensorflow#17654 and #14601: one more element behind than before; strides larger than windows."""
    x, w = np.arange(1.0, size + 1), np.arange(1.0, taps + 1) ** 2
    count = -(-size // stride)
    lacking = max((count - 1) * stride + taps - size, 0)
    padded = np.pad(x, [lacking // 2, lacking - lacking // 2])
    expected = [padded[i * stride : i * stride + taps] @ w for i in range(count)]
    inputs = {
        "x": (f"batch:1 length:{size} in:1", x[None, :, None]),
        "w": (f"taps:{taps} in:1 out:1", w[:, None, None]),
    }
    program = lambda x, w: mtf.conv1d(x, w, strides=stride, padding="SAME")  # noqa: E731
    for mesh, layout in (("rows:1", ""), ("rows:2", "length:rows"), ("rows:3", "length:rows")):
        done = interpret(program, inputs, mesh, layout, max_padding=0.9)
        np.testing.assert_array_equal(np.ravel(done.results), expected)


def test_what_lies_outside_is_in_no_window() -> None:
    """chainer/chainer#3391 and tensorflow/tensorflow#10216: zeros outside counted in means, and beat negatives."""
    x = np.array([-2.0, -1.0, -3.0, -4.0, -7.0])

    def pools(x: mtf.Tensor) -> list[mtf.Tensor]:
        found = [pool(x, {"n": 3}, strides={"n": 2}, padding="SAME") for pool in (mtf.avg_pool, mtf.max_pool)]
        return [*found, *mtf.gradients(mtf.reduce_sum(found[0]), [x]), *mtf.gradients(mtf.reduce_sum(found[1]), [x])]

    for mesh, layout in (("rows:1", ""), ("rows:2", "n:rows"), ("rows:5", "n:rows")):
        done = interpret(pools, {"x": ("batch:1 n:5 channels:1", x[None, :, None])}, mesh, layout, max_padding=0.9)
        means, largest, by_mean, by_largest = (np.ravel(r) for r in done.results)
        np.testing.assert_allclose(means, [-1.5, -8 / 3, -5.5], rtol=1e-15)
        np.testing.assert_array_equal(largest, [-1, -1, -4])
        np.testing.assert_allclose(by_mean, [1 / 2, 1 / 2 + 1 / 3, 1 / 3, 1 / 3 + 1 / 2, 1 / 2], rtol=1e-15)
        np.testing.assert_array_equal(by_largest, [0, 2, 0, 1, 0])


def test_an_update_that_is_overwritten_has_no_gradient() -> None:
    """tensorflow/tensorflow#56961: all updates of one place had its gradient, not the last alone."""
    x, w = np.zeros(4), np.array([1.0, 10.0, 100.0, 1000.0])
    indices, updates = np.array([1, 3, 1, 9, 3, 1], np.int32), np.arange(1.0, 7.0)

    def updated(x: mtf.Tensor, indices: mtf.Tensor, updates: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.scatter_update(x, indices, updates, "n")
        return [y, *mtf.gradients(mtf.reduce_sum(y * w), [x, updates])]

    inputs = {"x": ("n:4", x), "indices": ("m:6", indices), "updates": ("m:6", updates), "w": ("n:4", w)}
    program = BuiltProgram(updated, inputs)
    for mesh, layout in (("rows:1", ""), ("rows:2", "m:rows"), ("rows:2", "n:rows"), ("a:2;b:3", "n:a;m:b")):
        y, by_x, by_updates = program.interpret(mesh, layout).results
        np.testing.assert_array_equal(y, [0, 6, 0, 5])
        np.testing.assert_array_equal(by_x, [1, 0, 100, 0])
        np.testing.assert_array_equal(by_updates, [0, 0, 0, 0, 1000, 10])


def test_the_gradient_through_a_factor_is_that_of_the_inverse() -> None:
    """pytorch/pytorch#18825: the trace of the inverse by way of Cholesky's factor had twice the off-diagonal slope."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(2, 4, 4))
    matrix = root @ root.transpose(0, 2, 1) / 5 + np.eye(4)

    def trace(x: mtf.Tensor) -> list[mtf.Tensor]:
        identity = mtf.cast(mtf.equal(mtf.range(x.mesh, ("r", 4)), mtf.range(x.mesh, ("c", 4))), tf.float64)
        eye = mtf.rename_dimension(identity, "c", "k")
        factor = mtf.cholesky(x, "r", "c")
        inverse = mtf.triangular_solve(factor, mtf.broadcast(eye, "b:2 r:4 k:4"), "r", "c")
        y = mtf.reduce_sum(mtf.square(inverse))
        return [y, *mtf.gradients(y, [x])]

    inverse = np.linalg.inv(matrix)
    for mesh, layout in (("rows:1", ""), ("rows:2", "b:rows")):
        value, grad = interpret(trace, {"x": ("b:2 r:4 c:4", matrix)}, mesh, layout).results
        assert_close(value, np.trace(inverse, axis1=1, axis2=2).sum(), terms=400, magnitude=np.abs(inverse).max() * 16)
        symmetric = (grad + grad.transpose(0, 2, 1)) / 2
        np.testing.assert_allclose(symmetric, -inverse @ inverse, atol=1e-10)


def test_a_nan_among_infinities_counts_as_one_of_them() -> None:
    """What the docstrings say of NaN: first the lower index, and -inf for a value, under every layout."""
    x = np.array([NAN, -np.inf, NAN, -np.inf])
    program = BuiltProgram(lambda x: [*mtf.top_1(x, "n"), *mtf.top_k(x, "n", ("k", 3))], {"x": ("n:4", x)})
    for mesh, layout in (("rows:1", ""), ("rows:2", "n:rows"), ("rows:4", "n:rows")):
        best, first, values, places = program.interpret(mesh, layout).results
        assert (best, first) == (-np.inf, 0)
        np.testing.assert_array_equal(values, [-np.inf] * 3)
        np.testing.assert_array_equal(places, [0, 1, 2])
