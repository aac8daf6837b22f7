"""Reductions between cores that a TPU does not make: on the virtual TPU, and compiled by libtpu."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf

OTHERS = ["v4:2x2x2", "v5p:2x2x2", "v3:2x2", "v6e:2x4", "tpu7x:2x2x1"]
MESH, LAYOUT = "rows:2;cols:4", "n:cols;k:rows"
SHAPE = mtf.convert_to_shape("n:8;k:6")
WIDE = [tf.float64, tf.int64, tf.uint64]
NARROW = [tf.float32, tf.int32, tf.bfloat16]
COMPLEX = [tf.complex64, tf.complex128]
GATHERED, EXCHANGED = {"all_gather"}, {"all_to_all"}
KINDS_OF_SUMS = {
    tf.uint64: GATHERED | EXCHANGED,
    **dict.fromkeys([tf.float64, *COMPLEX], {"all_reduce"} | EXCHANGED),
    tf.int64: {"all_reduce", "reduce_scatter"},
}
TERMS = mtf.convert_to_shape("n:8;k:6;m:16")
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
def test_terms_of_64_bits_are_planned_to_be_gathered(dtype: tf.DType) -> None:
    inputs = {"x": mtf.TensorSpec(SHAPE, dtype)}
    step = mtf.function(reductions, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == GATHERED


@pytest.mark.parametrize(
    "dtype", [WIDE[0], *(pytest.param(d, marks=pytest.mark.long) for d in WIDE[1:])], ids=lambda d: d.name
)
def test_of_64_bits_terms_are_gathered(dtype: tf.DType) -> None:
    inputs, x = {"x": mtf.TensorSpec(SHAPE, dtype)}, values(dtype)
    step = mtf.function(reductions, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == GATHERED
    assert b"all-reduce" not in step.hlo()
    for actual, own in zip(step(x=x), expected(x), strict=True):
        np.testing.assert_array_equal(actual, own)
    on_cpus = mtf.function(reductions, mtf.PlanMeshImpl(MESH, LAYOUT), inputs=inputs)
    assert kinds(on_cpus.report()) == {"all_reduce"}


def sums(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Whole on every core, and in blocks: of the last dimension, of the first, and of both axes of the mesh."""
    whole = [mtf.reduce_sum(x, output_shape=shape) for shape in ("k:6", [])]
    every = [("k:6;m:16", "m:cols"), ("m:16;k:6", "m:cols"), ("m:16", "m:rows+cols")]
    return [*whole, *(mtf.with_layout(mtf.reduce_sum(x, output_shape=s), layout) for s, layout in every)]


def products(x: mtf.Tensor) -> list[mtf.Tensor]:
    return [mtf.reduce_prod(x, output_shape=shape) for shape in ("k:6", [])]


def terms(dtype: tf.DType) -> np.ndarray:
    """Whose sums are exact: small ones, but of uint64 those that come to 2^64 and more."""
    generator = np.random.default_rng(0)
    if dtype == tf.uint64:
        return generator.integers(0, 2**64, TERMS.to_integer_list, np.uint64)
    real, imaginary = generator.integers(-4, 5, (2, *TERMS.to_integer_list))
    return (real + 1j * imaginary if dtype.is_complex else real).astype(dtype.as_numpy_dtype)


def summed(x: np.ndarray) -> list[np.ndarray]:
    return [x.sum((0, 2)), x.sum(), x.sum(0), x.sum(0).T, x.sum((0, 1))]


@pytest.mark.parametrize("dtype", KINDS_OF_SUMS, ids=lambda d: d.name)
def test_sums_are_those_of_whole_arrays(dtype: tf.DType) -> None:
    inputs, x = {"x": mtf.TensorSpec(TERMS, dtype)}, terms(dtype)
    step = mtf.function(sums, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == KINDS_OF_SUMS[dtype]
    for actual, own in zip(step(x=x), summed(x), strict=True):
        np.testing.assert_array_equal(actual, own)


@pytest.mark.parametrize(
    ("topology", "dtypes"),
    [
        ("v5e:2x4", (WIDE[0], COMPLEX[1])),
        *(pytest.param(t, (*WIDE, *COMPLEX), marks=pytest.mark.long) for t in ("v5e:2x4", *OTHERS)),
    ],
)
def test_they_are_compiled_by_libtpu(topology: str, dtypes: tuple[tf.DType, ...]) -> None:
    """Which takes no reduction of these but some sums. One program has all: each program takes a second or more."""
    mesh_impl = mtf.PlanMeshImpl(MESH, LAYOUT)
    specs = {dtype.name: mtf.TensorSpec(TERMS, dtype) for dtype in KINDS_OF_SUMS}
    for spec in specs.values():
        report = mtf.function(sums, mesh_impl, inputs={"x": spec}).report()
        assert kinds(report) == {"all_reduce", "reduce_scatter"}

    small = {f"small {dtype.name}": mtf.TensorSpec(SHAPE, dtype) for dtype in dtypes}

    def of_each(**xs: mtf.Tensor) -> list[list[mtf.Tensor]]:
        others = [products(x) if x.dtype.is_complex else reductions(x) for name, x in xs.items() if name in small]
        return [*(sums(x) for name, x in xs.items() if name in specs), *others]

    assert mtf.function(of_each, mesh_impl, inputs=specs | small).compile(topology).hlo


@pytest.mark.parametrize("dtype", [pytest.param(COMPLEX[0], marks=pytest.mark.long), COMPLEX[1]], ids=lambda d: d.name)
def test_factors_of_complex_products_are_gathered(dtype: tf.DType) -> None:
    inputs = {"x": mtf.TensorSpec(SHAPE, dtype)}
    factors = np.random.default_rng(0).choice([1, 2j, -1, -1j], SHAPE.to_integer_list)  # whose products are exact
    x = factors.astype(dtype.as_numpy_dtype)
    step = mtf.function(products, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == GATHERED
    for actual, own in zip(step(x=x), [x.prod(0), x.prod()], strict=True):
        np.testing.assert_array_equal(actual, own)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_others_are_reduced_on_their_way(dtype: tf.DType) -> None:
    inputs = {"x": mtf.TensorSpec(SHAPE, dtype)}
    step = mtf.function(reductions, mtf.TpuMeshImpl(MESH, LAYOUT, physical_torus="2x2"), inputs=inputs)
    assert kinds(step.report()) == {"all_reduce"}
