from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.algebra.reduction import ReduceOperation
from meshtf.planning.plan import Compute
from meshtf.testing import assert_close, interpret, plan
from meshtf.testing.rounding import unit_roundoff

N, M = mtf.Dimension("n", 6), mtf.Dimension("m", 50)
MESHES = [("a:1", ""), ("a:2", "n:a"), ("a:4", "n:a"), ("a:2;b:5", "n:a;m:b"), ("a:3;b:4", "m:b;n:a")]


@pytest.mark.parametrize(("mesh_shape", "layout"), MESHES)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_mean_overflows_where_it_is_no_number_of_its_dtype_alone(
    dtype: tf.DType, mesh_shape: str, layout: str
) -> None:
    x = np.full([6, 50], 40000.0, dtype.as_numpy_dtype)
    results = interpret(
        lambda x: [
            mtf.reduce_mean(x),
            mtf.reduce_mean(x, reduced_dim=N),
            mtf.gradients([mtf.reduce_mean(x)], [x])[0],
        ],
        {"x": ([N, M], x)},
        mesh_shape,
        layout,
    ).results
    for mean in results[:2]:
        np.testing.assert_array_equal(mean, np.full(np.shape(mean), x[0, 0]))
    assert_close(results[2], np.full([6, 50], 1 / 300), terms=1, dtype=dtype)


@pytest.mark.parametrize(("mesh_shape", "layout"), MESHES)
def test_the_mean_of_equal_whole_numbers_is_that_number(mesh_shape: str, layout: str) -> None:
    """Times the rounded 1 / 300 it would be another."""
    for value in (255.0, 7.0, 4099.0):
        mean = interpret(mtf.reduce_mean, {"x": ([N, M], np.full([6, 50], value, np.float32))}, mesh_shape, layout)
        assert mean.results == value


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_many_small_terms_are_not_lost(dtype: tf.DType) -> None:
    """One by one, and rounded after each, they would stay at 2048 or 256; and the squares of 1 + 2^-7 are no bfloat16,
    nor are those of 1 + 2^-10 float16."""
    many, near_one = mtf.Dimension("many", 5000), 1.0 + 2 * unit_roundoff(dtype)
    squares = lambda x: mtf.einsum([x, x], output_shape=[])  # noqa: E731
    programs: list[Callable[[Any], Any]] = [mtf.reduce_sum, mtf.reduce_mean, squares]
    x = np.full([5000], near_one, dtype.as_numpy_dtype)
    for mesh_shape, layout in (("a:1", ""), ("a:8", "many:a")):
        found = interpret(lambda x: [p(x) for p in programs], {"x": ([many], x)}, mesh_shape, layout).results
        for actual, expected in zip(found, (5000 * near_one, near_one, 5000 * near_one**2), strict=True):
            assert_close(actual, np.asarray(expected), terms=2, dtype=dtype)


@pytest.mark.parametrize(
    "image",
    [
        "batch:4 height:1024 width:1024 channels:2",
        "batch:262144 height:4 width:4 channels:2",
        "batch:1 height:4194304 width:1 channels:2",
        "batch:64 channels:2 height:1024 width:64",
        "n:4194304 channels:2",
    ],
)
def test_sums_over_the_pixels_of_large_images_keep_their_digits(image: str) -> None:
    """One by one, 4 million numbers of 1.1 would add up to 4 % less; a count of 20 million ones would stop at 2^24."""
    programs: list[Callable[[Any], Any]] = [
        lambda x: mtf.reduce_sum(x, output_shape="channels"),
        lambda x: mtf.reduce_mean(x, output_shape="channels"),
        lambda x: mtf.einsum([x, mtf.ones(x.mesh, "channels:2")], output_shape="channels"),
    ]
    shape = mtf.convert_to_shape(image)
    x = np.full(shape.to_integer_list, 1.1, np.float32)
    found = interpret(lambda x: [p(x) for p in programs], {"x": (shape, x)}, "a:1", "").results
    for actual, expected in zip(found, (1.1 * 2**22, 1.1, 1.1 * 2**22), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2**-13)


def test_float32_is_reduced_as_ever() -> None:
    """By one operation for a sum, and one more for a mean; nothing is cast."""
    found = plan(lambda x: [mtf.reduce_sum(x), mtf.reduce_mean(x)], {"x": mtf.TensorSpec([N, M])}, "a:2", "n:a")
    kinds = [i.kind for i in found.instructions if isinstance(i, Compute)]
    assert sorted(kinds) == ["divide", "reduce_sum", "reduce_sum"]
    assert all(v.dtype == tf.float32 for i in found.instructions for v in i.outputs)
    assert sum(isinstance(i.operation, ReduceOperation) for i in found.instructions if isinstance(i, Compute)) == 2
