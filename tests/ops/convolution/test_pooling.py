"""Pooling against TensorFlow's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as original
from meshtf.errors import DtypeError, LayoutError, ShapeError, UsageError
from meshtf.testing import assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest
from tests.lowering.emitted import graph_of, nodes_in

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 12, 8, 4))
INPUT = {"x": ("b:2 h:12 w:8 c:4", X)}
LAYOUTS = ["c:rows", "h:rows", "h:rows;w:cols", "h:cols+rows", "c:rows;h:cols", "b:cols;w:rows"]
GRID = [
    ([2, 2], [2, 2]), ([3, 2], [1, 1]), ([3, 3], [2, 1]), ([2, 1], [3, 2]), ([5, 7], [1, 1]), ([4, 4], [4, 2]),
]  # fmt: skip

TWO_DIMENSIONS = [(kind, *sizes, padding) for kind in ("max", "avg") for sizes in GRID for padding in ("SAME", "VALID")]
SHARPEST = [*TWO_DIMENSIONS[2:12:3], TWO_DIMENSIONS[19]]
"""Of either kind, windows that overlap, that leave gaps, and that reach over several slices."""


def legal(ours: Any, shape: str) -> list[str]:
    found = []
    for layout in LAYOUTS:
        try:
            plan(ours, {"x": mtf.TensorSpec(shape, tf.float64)}, "rows:2;cols:2", layout)
            found.append(layout)
        except LayoutError:
            continue
    return found


@pytest.mark.parametrize(("kind", "ksize", "strides", "padding"), sharpest(TWO_DIMENSIONS, SHARPEST))
def test_two_dimensions_and_gradients(
    agrees: Any, kind: str, ksize: list[int], strides: list[int], padding: str
) -> None:
    ours, theirs = {"max": (mtf.max_pool, tf.nn.max_pool2d), "avg": (mtf.avg_pool, tf.nn.avg_pool2d)}[kind]

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return ours(x, dict(zip("hw", ksize, strict=True)), strides, padding)

    layouts = legal(program, INPUT["x"][0])
    assert layouts
    agrees(program, lambda x: theirs(x, ksize, strides, padding), INPUT, layouts[-3:])


def taps(x: tf.Tensor, ksize: list[int]) -> tf.Tensor:
    """Of [b, ..] with windows side by side: every element of each window, first."""
    parts = [x[:, k[0] :: ksize[0], k[1] :: ksize[1], k[2] :: ksize[2]] for k in itertools.product(*map(range, ksize))]
    return tf.stack(parts)


def test_three_dimensions_and_windows_side_by_side(agrees: Any) -> None:
    x = RNG.standard_normal((2, 8, 4, 12))
    ksize = {"d": 2, "h": 1, "w": 3}
    agrees(
        lambda x: [mtf.max_pool(x, ksize), mtf.avg_pool(x, ksize)],
        lambda x: [tf.reduce_max(taps(x, [2, 1, 3]), 0), tf.reduce_mean(taps(x, [2, 1, 3]), 0)],
        {"x": ("b:2 d:8 h:4 w:12", x)},
        ["", "d:rows;w:cols", "d:rows+cols", "h:rows;d:cols"],
    )


def test_one_dimension_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = RNG.standard_normal((12, 24, 1))
    agrees_on_many_meshes(
        lambda x: [mtf.max_pool(x, {"w": 3}, 1, "SAME"), mtf.avg_pool(x, {"w": 5}, 2, "SAME")],
        lambda x: [tf.nn.max_pool1d(x, 3, 1, "SAME"), tf.nn.avg_pool1d(x, 5, 2, "SAME")],
        {"x": ("b:12 w:24 c:1", x)},
    )


@pytest.mark.parametrize("layout", ["", "h:rows", "h:cols;w:rows", "w:cols+rows"])
def test_of_equal_elements_the_first_of_the_window_has_the_gradient(layout: str) -> None:
    x = RNG.integers(0, 2, (2, 12, 8, 4)).astype(np.float64)

    def program(x: mtf.Tensor) -> list[Any]:
        return mtf.gradients(mtf.max_pool(x, {"h": 3, "w": 2}, 1, "SAME"), [x])

    with tf.GradientTape() as tape:
        variable = tf.Variable(x)
        y = tf.nn.max_pool2d(variable, [3, 2], 1, "SAME")
    expected = tape.gradient(y, variable)
    found = interpret(program, {"x": ("b:2 h:12 w:8 c:4", x)}, "rows:2;cols:2", layout).results[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [tf.int32, tf.uint8, tf.bfloat16, tf.float16])
def test_dtypes(dtype: tf.DType) -> None:
    x = tf.cast(RNG.integers(0, 50, (1, 8, 1)), dtype)
    for layout in ("", "w:rows", "w:rows+cols"):
        found = interpret(lambda x: mtf.max_pool(x, {"w": 3}, 1, "SAME"), {"x": ("b:1 w:8 c:1", x.numpy())},
                          "rows:2;cols:2", layout).results  # fmt: skip
        assert tf.as_dtype(found.dtype) == dtype
        expected = tf.nn.max_pool1d(tf.cast(x, tf.float32), 3, 1, "SAME")
        np.testing.assert_array_equal(tf.cast(found, tf.float32), expected)


@pytest.mark.parametrize(("ksize", "stride", "rows"), [(3, 1, 2), (2, 2, 0), (4, 2, 2), (5, 1, 4)])
def test_borders_and_no_more_are_sent(ksize: int, stride: int, rows: int) -> None:
    planned = plan(lambda x: mtf.max_pool(x, {"h": ksize}, stride, "SAME"), {"x": mtf.TensorSpec("h:64 w:3")},
                   "rows:2;cols:4", "h:rows+cols")  # fmt: skip
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
    assert sent == rows * 3 * 4


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        ksize = {"h": 3, "w": 2}
        return [mtf.max_pool(x, ksize, 1, "SAME"), mtf.square(mtf.avg_pool(x, ksize, 1, "SAME"))]

    inputs = {"x": ("b:2 h:8 w:7", RNG.standard_normal((2, 8, 7)).astype(np.float32))}
    assert_layout_invariant(program, inputs, ["h:rows;w:cols"])


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 height:8")
    for ours in (mtf.max_pool, mtf.avg_pool):
        with pytest.raises(ShapeError, match=r'no dimension "hight" .*; did you mean "height"'):
            ours(x, {"hight": 2})
        with pytest.raises(ShapeError, match=r'a window of 9 along "height" is larger than its size 8'):
            ours(x, {"height": 9})
        with pytest.raises(ShapeError, match=r"ksize must give sizes by dimension"):
            ours(x, 2)
        with pytest.raises(ShapeError, match=r"ksize must be at least 1"):
            ours(x, {"height": 0})
        with pytest.raises(ShapeError, match=r'padding must be "SAME", "VALID" or "SYMMETRIC"'):
            ours(x, {"height": 2}, padding="FULL")
    with pytest.raises(DtypeError, match=r"bool has no largest element"):
        mtf.max_pool(mtf.greater(x, 0.0), {"height": 2})
    with pytest.raises(DtypeError, match=r"the mean of int32"):
        mtf.avg_pool(mtf.to_int32(x), {"height": 2})


@pytest.mark.parametrize("layout", ["", "h:rows", "h:cols;w:rows", "w:cols+rows"])
def test_where_all_is_minus_infinity_the_first_inside_has_the_gradient(layout: str) -> None:
    """As TensorFlow does; what lies outside, which is taken to be -inf, gets none of it."""
    x = np.full((1, 12, 8, 1), -np.inf)
    x[0, 6:, 4:] = 0.0

    def program(x: mtf.Tensor) -> list[Any]:
        return mtf.gradients(mtf.max_pool(x, {"h": 3, "w": 4}, 1, "SAME"), [x])

    with tf.GradientTape() as tape:
        variable = tf.Variable(x)
        y = tf.nn.max_pool2d(variable, [3, 4], 1, "SAME")
    expected = tape.gradient(y, variable)
    found = interpret(program, {"x": ("b:1 h:12 w:8 c:1", x)}, "rows:2;cols:2", layout).results[0]
    assert np.sum(found) == 12 * 8
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    sharpest(
        [("MAX_2D", [2, 4]), ("AVG_2D", [2, 4]), ("MAX_3D", [1, 2, 4])], [("AVG_2D", [2, 4]), ("MAX_3D", [1, 2, 4])]
    ),
)
def test_pool_backprop(kind: str, sizes: list[int]) -> None:
    dy = RNG.standard_normal((2, 6, 2, 4))
    pool = mtf.max_pool if kind.startswith("MAX") else mtf.avg_pool
    names = ["b", "h", "w"][-len(sizes) :]

    def program(x: mtf.Tensor, dy: mtf.Tensor) -> list[Any]:
        ksize = dict(zip(names, sizes, strict=True))
        y = pool(x, ksize)
        by_name = original.pool_backprop(x, y, dy, ksize, None, kind)
        by_order = original.pool_backprop(x, y, mtf.transpose(dy, dy.shape[::-1]), sizes, sizes, kind)
        return [by_name, by_order, *mtf.gradients(y, x, [dy])]

    inputs = {"x": INPUT["x"], "dy": ("b:2 h:6 w:2 c:4", dy)}
    for layout in ("", "h:rows;w:cols", "b:rows;c:cols"):
        by_name, by_order, expected = interpret(program, inputs, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(by_name, expected)
        np.testing.assert_array_equal(by_order, expected)


def test_errors_of_pool_backprop() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, y = mtf.placeholder(mesh, "b:1 h:4 w:4 c:1"), mtf.placeholder(mesh, "b:1 h:2 w:2 c:1")
    with pytest.raises(UsageError, match=r"one of MAX_2D, AVG_2D, .*, not 'MAX_2'; did you mean \"MAX_2D\""):
        original.pool_backprop(x, y, y, [2, 2], None, "MAX_2")
    with pytest.raises(ShapeError, match=r"MAX_3D slides windows along 3 dimensions; ksize is \[2, 2\]"):
        original.pool_backprop(x, y, y, [2, 2], None, "MAX_3D")
    with pytest.raises(
        ShapeError,
        match=r"dy is \[b:1 h:4 w:4 c:1\], and .* gives \[b:1 h:2 w:2 c:1\]",
    ):
        original.pool_backprop(x, y, x, [2, 2], None, "AVG_2D")


ON_PROCESSORS = [(kind, *case) for kind in ("max", "avg") for case in GRID]


@pytest.mark.parametrize(
    ("layout", "cases"),
    [
        ("h:rows", [*ON_PROCESSORS[:6:2], *ON_PROCESSORS[7::2]]),
        *(pytest.param(layout, ON_PROCESSORS, marks=pytest.mark.long) for layout in ("", "b:rows", "h:rows")),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_on_processors_no_element_is_taken_by_itself(layout: str, cases: list[Any]) -> None:
    """By TensorFlow's kernel for every second element: with gathers the same values as there."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        results = []
        for kind, ksize, strides in cases:
            pool = mtf.max_pool if kind == "max" else mtf.avg_pool
            y = pool(x, dict(zip("hw", ksize, strict=True)), strides, "SAME")
            results += [y, *mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])]
        return results

    x = X.astype(np.float32)
    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2", layout), {"x": mtf.TensorSpec(INPUT["x"][0])})
    found = [y.numpy() for y in step(x=x)]
    for (kind, ksize, strides), y, dx in zip(cases, found[::2], found[1::2], strict=True):
        with tf.GradientTape() as tape:
            given = tf.constant(x)
            tape.watch(given)
            pool = tf.nn.max_pool2d if kind == "max" else tf.nn.avg_pool2d
            expected = pool(given, ksize, strides, "SAME")
            total = tf.reduce_sum(tf.square(expected))
        terms = math.prod(ksize)
        assert_close(y, expected, terms=terms, what=f"{kind} {ksize} {strides}")
        assert_close(dx, tape.gradient(total, given), terms=2 * terms, magnitude=np.abs(x).max() * terms, what=kind)
    assert "GatherV2" in {node.op for node in nodes_in(graph_of(step))}


@pytest.mark.parametrize("layout", ["", "h:rows", "h:rows;w:cols"])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_means_of_large_narrow_numbers(dtype: tf.DType, layout: str) -> None:
    """Sums of a window are beyond float16, and its mean is not."""
    x = np.full([4, 4], 40000.0, dtype.as_numpy_dtype)
    pooled = lambda x: mtf.avg_pool(x, {"h": 3, "w": 3}, strides=1, padding="SAME")  # noqa: E731
    y = interpret(pooled, {"x": ("h:4 w:4", x)}, "rows:2;cols:2", layout).results
    np.testing.assert_array_equal(y, x)


def test_symmetric_windows_in_layouts(agrees: Any) -> None:
    """The smallest numbers stand in for the elements outside, which must not count."""
    x = RNG.standard_normal((2, 8, 12))

    def theirs(x: tf.Tensor) -> list[tf.Tensor]:
        wide = tf.pad(x, [[0, 0], [1, 1], [0, 0]], constant_values=tf.constant(-np.inf, x.dtype))
        inside = tf.pad(tf.ones_like(x), [[0, 0], [1, 1], [0, 0]])
        zeros = tf.pad(x, [[0, 0], [1, 1], [0, 0]])
        spans = [slice(tap, tap + 7, 2) for tap in range(3)]
        largest = tf.reduce_max(tf.stack([wide[:, span] for span in spans]), 0)
        total, count = (tf.add_n([of[:, span] for span in spans]) for of in (zeros, inside))
        return [largest, total / count]

    agrees(
        lambda x: [pool(x, {"h": 3}, 2, "SYMMETRIC") for pool in (mtf.max_pool, mtf.avg_pool)],
        theirs,
        {"x": ("b:2 h:8 w:12", x)},
        ["", "h:rows", "h:rows+cols", "h:cols;w:rows"],
    )
