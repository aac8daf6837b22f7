"""Reports of other systems about single operations at their edges, each under splits that do not divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import interpret
from tests.built_program import Inputs

pytestmark = pytest.mark.quick

MESHES = (("rows:1", ""), ("rows:2", "n:rows"), ("rows:4", "n:rows"))


def on_every_mesh(program: Callable[..., Any], inputs: Inputs, meshes: Any = MESHES) -> list[Any]:
    return [interpret(program, inputs, mesh, layout, max_padding=0.9).results for mesh, layout in meshes]


def check(program: Callable[..., Any], inputs: Inputs, expected: list[Any], meshes: Any = MESHES) -> None:
    for found in on_every_mesh(program, inputs, meshes):
        for one, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=2**-21)


def test_the_size_of_a_complex_number_has_a_gradient_at_0_and_near_it() -> None:
    """FluxML/Zygote.jl#1472, pytorch/pytorch#96543: NaN at 0, and where the square of a small number is 0."""
    z = np.array([0, 1e-23, 3 + 4j, -1e30j, 1e30 + 1e30j], np.complex64)
    directions = [0, 1, 0.6 + 0.8j, -1j, (1 + 1j) / np.sqrt(2)]
    program = lambda z: [mtf.abs(z), *mtf.gradients(mtf.reduce_sum(mtf.abs(z)), [z])]  # noqa: E731
    check(program, {"z": ("n:5", z)}, [np.abs(z.astype(np.complex128)), directions])


def test_an_index_that_is_none_of_a_dimension_chooses_nothing() -> None:
    """tensorflow/tensorflow#11727, jax-ml/jax#2895, NVIDIA/warp#1653: errors, clamping, or memory before the table; and
    a gradient that is not that of the lookup."""
    ids, table = np.array([-1, 0, 4, 5, 2**31 - 1, -(2**31)], np.int32), np.arange(1.0, 11.0).reshape(5, 2)

    def program(ids: mtf.Tensor, table: mtf.Tensor) -> list[mtf.Tensor]:
        rows = mtf.gather(table, ids, "n")
        put = mtf.scatter_add(mtf.zeros_like(table), ids, mtf.ones_like(rows), "n")
        return [mtf.one_hot(ids, ("n", 5), 7.0, -1.0), rows, *mtf.gradients(mtf.reduce_sum(rows), [table]), put]

    one_hot, rows, counts = np.full([6, 5], -1.0), np.zeros([6, 2]), np.zeros([5, 2])
    for place, index in ((1, 0), (2, 4)):
        one_hot[place, index], rows[place], counts[index] = 7.0, table[index], 1
    check(program, {"ids": ("m:6", ids), "table": ("n:5 k:2", table)}, [one_hot, rows, counts, counts])


@pytest.mark.parametrize("begin", [-3, 2, 9])
def test_the_gradient_of_a_slice_is_clamped_with_it(begin: int) -> None:
    """jax-ml/jax#11580, #34229: it went to other elements than those of the slice, where the beginning is outside."""
    x, weights, first = np.arange(7.0), np.array([1.0, 10.0, 100.0]), min(max(begin, 0), 4)

    def program(x: mtf.Tensor, piece: mtf.Tensor, begin: mtf.Tensor) -> list[mtf.Tensor]:
        weights = mtf.constant(x.mesh, [1.0, 10.0, 100.0], "n:3", tf.float64)
        cut = mtf.reduce_sum(mtf.dynamic_slice(x, begin, 3, "n") * weights)
        written = mtf.reduce_sum(mtf.dynamic_update_slice(x, piece, begin, "n") * mtf.range(x.mesh, ("n", 7), x.dtype))
        return [*mtf.gradients(cut, [x]), *mtf.gradients(written, [x, piece])]

    by_cut, by_rest = np.zeros(7), np.arange(7.0)
    by_cut[first : first + 3], by_rest[first : first + 3] = weights, 0
    inputs = {"x": ("n:7", x), "piece": ("n:3", weights), "begin": ("", np.int32(begin))}
    check(program, inputs, [by_cut, by_rest, np.arange(first, first + 3)])


def test_equal_maxima_share_a_gradient_or_the_first_has_it() -> None:
    """tensorflow/tensorflow#51681, #4886: a reduction shares it among all, a window gives it to the first."""
    x = np.array([1.0, 3.0, 3.0, 3.0, 0.0])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        image = mtf.reshape(x, "n:5 channels:1")
        pooled = mtf.max_pool(image, {"n": 5}, {"n": 5})
        by_rank = mtf.top_k(x, "n", ("k", 2))[0]
        return [mtf.gradients(mtf.reduce_sum(y), [x])[0] for y in (mtf.reduce_max(x), pooled, by_rank)]

    check(program, {"x": ("n:5", x)}, [[0, 1 / 3, 1 / 3, 1 / 3, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0]])


def test_a_window_with_a_nan_is_nan_and_one_of_minus_infinity_is_that() -> None:
    """pytorch/pytorch#7645, tensorflow/tensorflow#2501: NaN was passed over, or became the lowest finite number."""
    x = np.array([-np.inf, -np.inf, 3, np.nan, -1, -np.inf, 2])
    program = lambda x: [mtf.max_pool(mtf.reshape(x, "n:7 channels:1"), {"n": 2}, {"n": 2}, "SAME")]  # noqa: E731
    check(program, {"x": ("n:7", x)}, [np.array([[-np.inf], [np.nan], [-1], [2]])])


def test_sizes_of_0_have_sums_and_no_extrema() -> None:
    """pytorch/xla#887, pytorch/pytorch#71629: the lowest float as a maximum, or an error about something else."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        start, ones = mtf.ones(x.mesh, "m:3", x.dtype), mtf.ones(x.mesh, "n:2 m:3", x.dtype)
        (last,), _ = mtf.scan(lambda carried, parts: ([carried[0] + parts[0]], []), start, x, ("n", 0))
        looked_up = mtf.gather(x, mtf.zeros(x.mesh, "i:2", tf.int32), "n")
        sums = [mtf.reduce_sum(x), mtf.reduce_prod(x), mtf.einsum([x, x], output_shape="m:3"), mtf.cumsum(x, "n")]
        return [*sums, looked_up, mtf.concat([x, ones], "n"), last, *mtf.gradients(sums[0], [x])]

    nothing, ones = np.zeros([0, 3]), np.ones([2, 3])
    expected = [0, 1, np.zeros(3), nothing, np.zeros([2, 3]), ones, np.ones(3), nothing]
    check(program, {"x": ("n:0 m:3", nothing)}, expected, (*MESHES[:2], ("rows:2", "m:rows")))
    empty = mtf.zeros(mtf.Mesh(mtf.Graph()), "n:0 m:3")
    for refused in (mtf.reduce_max, mtf.reduce_min, mtf.reduce_mean):
        with pytest.raises(ShapeError, match=r'has no elements along "n"'):
            refused(empty)


def test_padding_divides_no_integer() -> None:
    """openxla/stablehlo#3009: an integer divided by 0 is an error, and padding of a divisor is 0."""
    x, by = np.array([7, 8, 9, -10, 11], np.int32), np.array([1, 2, 3, 4, 5], np.int32)

    def program(x: mtf.Tensor, by: mtf.Tensor) -> list[mtf.Tensor]:
        moved = mtf.shift(by, 1, "n", wrap=True)
        return [mtf.floordiv(x, by), mtf.mod(x, by), mtf.floordiv(x, mtf.reverse(by, "n")), mtf.mod(7, moved)]

    expected = [x // by, x % by, x // by[::-1], 7 % np.roll(by, 1)]
    check(program, {"x": ("n:5", x), "by": ("n:5", by)}, expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        interpret(lambda x, by: mtf.floordiv(x, by - 1), {"x": ("n:5", x), "by": ("n:5", by)}, "rows:1")


def test_a_row_with_nan_or_infinity_has_nan_in_its_place() -> None:
    """openvinotoolkit/openvino#33456, mindspore-ai/mindspore#274: in the other places as the kernel has it."""
    for size in (np.nan, np.inf):
        x = np.array([[1, size, 2, 3, 4], [1, 2, 3, 4, 5]], np.float32)
        for probabilities, logarithms in on_every_mesh(
            lambda x: [mtf.softmax(x, "n"), mtf.log_softmax(x, "n")], {"x": ("m:2 n:5", x)}
        ):
            assert np.isnan(probabilities[0, 1])
            assert np.isnan(logarithms[0]).all()
            np.testing.assert_allclose(probabilities[1], np.exp(logarithms[1]), rtol=2**-20)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_narrow_running_sums_go_on_rising(dtype: tf.DType) -> None:
    """tensorflow/tensorflow#115731: a running sum of ones in bfloat16 stands still at 256; in float16 at 2048."""
    ones = np.ones(4096, dtype.as_numpy_dtype)
    wanted = np.arange(1, 4097).astype(ones.dtype)
    program = lambda x: [mtf.cumsum(x, "n"), mtf.cumsum(x, "n", reverse=True)]  # noqa: E731
    for forward, back in on_every_mesh(program, {"x": ("n:4096", ones)}):
        np.testing.assert_array_equal(forward, wanted)
        np.testing.assert_array_equal(back, wanted[::-1])


ALONG_EITHER = (
    ("a:1", ""),
    ("a:2", "p:a"),
    ("a:2", "q:a"),
    ("a:2;b:2", "p:a;q:b"),
    ("a:4", "pq:a"),
    ("a:2;b:2", "q:a;pq:b"),
    ("a:3;b:2", "pq:a+b;p:b"),
)


def test_dimensions_that_do_not_divide_are_merged_and_cut() -> None:
    """pytorch/pytorch#143372, #179632: an error where a device has nothing, or elements of another place."""
    x = np.arange(30.0).reshape(3, 5, 2)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        merged = mtf.reshape(x, "pq:15 k:2")
        cut = mtf.reshape(merged, "r:5 s:3 k:2")
        total = mtf.reduce_sum(mtf.square(cut) * mtf.reshape(mtf.cumsum(merged, "pq"), cut.shape))
        turned = mtf.reshape(mtf.transpose(x, "q:5 k:2 p:3"), "u:10 p:3")
        return [merged, cut, turned, *mtf.gradients(total, [x])]

    flat = x.reshape(15, 2)
    grad = 2 * flat * flat.cumsum(0) + (flat**2)[::-1].cumsum(0)[::-1]
    expected = [flat, x.reshape(5, 3, 2), x.transpose(1, 2, 0).reshape(10, 3), grad.reshape(x.shape)]
    check(program, {"x": ("p:3 q:5 k:2", x)}, expected, ALONG_EITHER)


@pytest.mark.parametrize("lower", [True, False])
def test_the_triangle_that_is_not_read_has_no_gradient(lower: bool) -> None:
    """elixir-nx/nx#1741, pymc-devs/pytensor#1230: no gradient in batches, and one where nothing is read."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3, 3)) + 3 * np.eye(3), rng.normal(size=(5, 3, 2))

    def program(a: mtf.Tensor, b: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.triangular_solve(a, b, "i", "j", lower=lower)
        return [y, *mtf.gradients(mtf.reduce_sum(y), [a, b])]

    triangle = np.tril(a) if lower else np.triu(a)
    y = np.linalg.solve(triangle, b)
    by_b = np.linalg.solve(triangle.transpose(0, 2, 1), np.ones_like(b))
    by_a = -by_b @ y.transpose(0, 2, 1)
    expected = [y, np.tril(by_a) if lower else np.triu(by_a), by_b]
    check(program, {"a": ("n:5 i:3 j:3", a), "b": ("n:5 i:3 k:2", b)}, expected)


def test_wide_matrices_are_refused_by_qr() -> None:
    """elixir-nx/nx#1810, jax-ml/jax#23533: values for wide matrices, but no gradients."""
    with pytest.raises(ShapeError, match=r"rows:2"):
        mtf.qr(mtf.zeros(mtf.Mesh(mtf.Graph()), "rows:2 columns:3"), "rows", "columns", inner_dim="inner")


def test_dropping_everything_is_refused_and_dropping_nothing_is_the_identity() -> None:
    """google/flax#2055: 0 / 0 where all is dropped."""
    x = np.arange(5.0)
    check(lambda x: [mtf.dropout(x, is_training=True, rate=0.0)], {"x": ("n:5", x)}, [x])
    for given, words in (
        ({"rate": 1.0}, r"rate must be in \[0, 1\), and is 1"),
        ({"keep_prob": 0.0}, "keep_prob must be in"),
    ):
        with pytest.raises(GraphError, match=words):
            interpret(lambda x, given=given: mtf.dropout(x, is_training=True, **given), {"x": ("n:5", x)}, "rows:1")


def test_a_mask_is_the_same_in_every_type_and_on_every_mesh() -> None:
    """tenstorrent/tt-metal#55947: masks that differ between replicas, or are alike where slices differ."""
    program = lambda x: mtf.not_equal(mtf.dropout(x, is_training=True, rate=0.5), 0.0)  # noqa: E731
    meshes = (*MESHES, ("rows:2;cols:2", "n:rows"), ("rows:2;cols:2", "m:rows+cols"))
    masks = [
        mask
        for dtype in (tf.float64, tf.float32, tf.float16, tf.bfloat16)
        for mask in on_every_mesh(program, {"x": ("n:5 m:16", np.ones([5, 16], dtype.as_numpy_dtype))}, meshes)
    ]
    assert 20 < masks[0].sum() < 60
    assert all((mask == masks[0]).all() for mask in masks)
    assert len({row.tobytes() for row in masks[0]}) == 5


@pytest.mark.parametrize("again", [None, "nothing"])
def test_a_loop_drops_anew_in_each_step_and_backward_what_it_dropped(again: str | None) -> None:
    """google/flax#4950, #1252, #2194: one mask for all steps, or none to be had; asked for, there is one mask."""
    draws = {"draws_alike": False}

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return carried, [mtf.dropout(parts[0], is_training=True, rate=0.5)]

        _, (y,) = mtf.scan(step, mtf.zeros(x.mesh, [], x.dtype), x, ("time", 4), recompute=again, **draws)  # type: ignore[arg-type]
        return [y, *mtf.gradients(mtf.reduce_sum(y), [x])]

    inputs: Inputs = {"x": ("time:4 n:5 m:8", np.ones([4, 5, 8]))}
    (y, grad), *others = on_every_mesh(program, inputs)
    np.testing.assert_array_equal(y, grad)
    assert len({step.tobytes() for step in y}) == 4
    assert all(np.array_equal(y, other) for other, _ in others)
    draws["draws_alike"] = True
    assert len({step.tobytes() for step in on_every_mesh(program, inputs)[1][0]}) == 1


def test_a_batch_of_one_has_no_variance_and_its_averages_are_numbers() -> None:
    """ml-explore/mlx#3817: the unbiased variance of one value is 0 / 0; and evaluation before any step."""
    x = np.arange(1.0, 6.0)[None]

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        norm = lambda is_training, name: mtf.layers.batch_norm(x, is_training, 0.5, 1e-9, name=name)  # noqa: E731
        y = norm(True, "trained")
        return [y, norm(False, "new"), norm(False, "trained"), *mtf.gradients(mtf.reduce_sum(y), [x])]

    meshes = (("rows:1", ""), ("rows:2", "n:rows"), ("rows:2", "batch:rows"))
    moved = (x - 0.5 * x) / np.sqrt(0.5)
    check(program, {"x": ("batch:1 n:5", x)}, [np.zeros_like(x), x, moved, np.zeros_like(x)], meshes)
