"""Sums over cores of narrow floats, under layouts that split what is summed: the same as on one core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.planning.plan import Collective, walk
from meshtf.testing import assert_close, interpret

N, K = mtf.Dimension("n", 6), mtf.Dimension("k", 4)
MESHES = [("a:1", ""), ("a:2", "n:a"), ("a:3", "n:a"), ("a:4", "n:a"), ("a:2;b:2", "n:a;k:b"), ("a:2;b:2", "n:a+b")]
BEYOND = np.array([40000.0, 40000.0, -40000.0, 1.0, 1.0, 1.0])
"""Of which some partial sums are beyond float16, and the sum is not: 40003, between two float16 32 apart."""


def product(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([x, mtf.fill(x.mesh, 1.0, [N, K], x.dtype)], output_shape=[K])


def dot(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([x, mtf.fill(x.mesh, 1.0, [N], x.dtype)], output_shape=[])


def gradient_of_lookup(x: mtf.Tensor) -> mtf.Tensor:
    table = mtf.fill(x.mesh, 1.0, [mtf.Dimension("rows", 1)], x.dtype)
    looked_up = mtf.gather(table, mtf.zeros(x.mesh, [N], tf.int32), table.shape[0])
    (gradient,) = mtf.gradients([looked_up], [table], [x])
    assert gradient is not None
    return gradient


def convolved(x: mtf.Tensor) -> mtf.Tensor:
    image = mtf.reshape(x, [mtf.Dimension("batch", 1), mtf.Dimension("width", 1), N])
    kernel = mtf.fill(x.mesh, 1.0, [mtf.Dimension("window", 1), N, K], x.dtype)
    return mtf.conv1d(image, kernel)


def of_sums_that_wait(x: mtf.Tensor) -> mtf.Tensor:
    """Linear work, which leaves sums to what comes after it."""
    return 0.5 * product(x) + 0.5 * product(x)


@pytest.mark.parametrize(("mesh_shape", "layout"), MESHES)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_terms_may_be_beyond_their_sum(dtype: tf.DType, mesh_shape: str, layout: str) -> None:
    programs: list[Callable[[Any], Any]] = [
        mtf.reduce_sum, product, dot, gradient_of_lookup, convolved, of_sums_that_wait
    ]  # fmt: skip
    inputs = {"x": ([N], BEYOND.astype(dtype.as_numpy_dtype))}
    results = interpret(lambda x: [program(x) for program in programs], inputs, mesh_shape, layout).results
    for result in results:
        # One rounding of each core's term, where bfloat16 travels, and one of the sum; of magnitudes that add up.
        expected = np.full(np.shape(result), BEYOND.astype(dtype.as_numpy_dtype).astype(np.float64).sum())
        assert_close(result, expected, terms=5, dtype=dtype, magnitude=120003.0 if dtype == tf.bfloat16 else 40003.0)


@pytest.mark.parametrize(("mesh_shape", "layout"), MESHES)
def test_products_of_float16_may_be_beyond_theirs(mesh_shape: str, layout: str) -> None:
    x = np.array([3000.0, 300.0, 0.25, 0.25, 0.5, 1.0], np.float16)
    result = interpret(mtf.reduce_prod, {"x": ([N], x)}, mesh_shape, layout).results
    assert_close(result, np.prod(x.astype(np.float64)), terms=1, dtype=tf.float16)


@pytest.mark.parametrize("layout", ["n:a", "n:a+b"])
def test_what_travels(layout: str) -> None:
    """Terms of bfloat16 as they are, of float16 and of means in float32."""

    def sent(program: Callable[[Any], Any], dtype: tf.DType) -> set[str]:
        found = interpret(program, {"x": ([N], np.ones(6, dtype.as_numpy_dtype))}, "a:2;b:2", layout).plan
        return {i.input.dtype.name for i, _ in walk(found.instructions) if isinstance(i, Collective)}

    for program in (mtf.reduce_sum, product):
        assert sent(program, tf.bfloat16) == {"bfloat16"}
        assert sent(program, tf.float16) == {"float32"}
    for dtype in (tf.bfloat16, tf.float16):
        assert sent(mtf.reduce_mean, dtype) == {"float32"}


def test_a_sum_is_split_as_its_readers_are() -> None:
    """What is done at once is a reduce-scatter where the result is split, as a sum that waits would be."""

    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(mtf.einsum([x, w], output_shape=[K]), "k:a")

    inputs = {"x": ([N], np.ones(6, np.float16)), "w": ([N, K], np.ones((6, 4), np.float16))}
    found = interpret(program, inputs, "a:2", "n:a")
    np.testing.assert_array_equal(found.results, np.full(4, 6.0))
    assert [i.step.kind for i, _ in walk(found.plan.instructions) if isinstance(i, Collective)] == ["reduce_scatter"]
