"""Reductions between cores that a TPU does not make: on the virtual TPU, and compiled by libtpu."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf

MESH, LAYOUT = "rows:2;cols:4", "n:cols;k:rows"
SHAPE = mtf.convert_to_shape("n:8;k:6")
WIDE = [tf.float64, tf.int64, tf.uint64]
NARROW = [tf.float32, tf.int32, tf.bfloat16]
Reduce = Callable[..., mtf.Tensor]


def reductions(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Of vectors and of scalars, over one axis of the mesh and over both; and in a loop."""

    def body(i: mtf.Tensor, largest: mtf.Tensor) -> list[mtf.Tensor]:
        return [i + 1, mtf.maximum(largest, mtf.reduce_max(x, output_shape="k:6"))]

    start = [mtf.constant(x.mesh, 0, dtype=tf.int32), mtf.zeros(x.mesh, "k:6", x.dtype)]
    _, looped = mtf.while_loop(lambda i, _: mtf.less(i, 2), body, start, maximum_iterations=2)
    every: list[Reduce] = [mtf.reduce_max, mtf.reduce_min, mtf.reduce_prod]
    return [looped, *(f(x, output_shape=shape) for f in every for shape in ("k:6", []))]


def values(dtype: tf.DType) -> np.ndarray:
    drawn = np.random.default_rng(0).integers(1, 3, SHAPE.to_integer_list)  # whose products are exact
    return drawn.astype(dtype.as_numpy_dtype)


def expected(x: np.ndarray) -> list[np.ndarray]:
    return [x.max(0), *(y for f in (np.max, np.min, np.prod) for y in (f(x, 0), f(x)))]


def kinds(report: mtf.Report) -> set[str]:
    return {c.kind for c in report.collectives}


@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
def test_of_64_bits_terms_are_gathered(dtype: tf.DType) -> None:
    inputs, x = {"x": mtf.TensorSpec(SHAPE, dtype)}, values(dtype)
    step = mtf.function(reductions, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == {"all_gather"}
    assert b"all-reduce" not in step.hlo()
    for actual, own in zip(step(x=x), expected(x), strict=True):
        np.testing.assert_array_equal(actual, own)
    on_cpus = mtf.function(reductions, mtf.PlanMeshImpl(MESH, LAYOUT), inputs=inputs)
    assert kinds(on_cpus.report()) == {"all_reduce"}
    assert on_cpus.compile("v5e:2x4").hlo  # by libtpu, which takes no reduction of these but some sums


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_others_are_reduced_on_their_way(dtype: tf.DType) -> None:
    inputs = {"x": mtf.TensorSpec(SHAPE, dtype)}
    step = mtf.function(reductions, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == {"all_reduce"}
