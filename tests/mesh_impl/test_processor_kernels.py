"""Products are what NumPy has, whatever the kernels are, and done so as these are fastest.

All numbers are small integers, whose sums of products are exact in float32 in any order.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.mesh_impl.processor_kernels import ProcessorKernels
from meshtf.tensorflow_private import onednn_operations

TENSORFLOW, CALLED = ProcessorKernels(False, False, False), ProcessorKernels(False, True, True)
ONEDNN, ONEDNN_BY_AVX2 = ProcessorKernels(True, False, False), ProcessorKernels(True, True, False)
OF_ONEDNN = ("MklMatMul", "MklBatchMatMulV2", "MklNativeConv2DBackpropInput")


def integers(seed: int, *size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, size=size).astype(np.float32)


def product(
    kernels: ProcessorKernels, a: np.ndarray, b: np.ndarray, transposed: str
) -> tuple[tf.types.experimental.ConcreteFunction, tf.Tensor]:
    """Of a and b, those of "a" and "b" in `transposed` given so; the program of it, and what it gives."""

    @tf.function(autograph=False)
    def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return kernels.product(a, b, transpose_a="a" in transposed, transpose_b="b" in transposed)

    given = [tf.constant(x.swapaxes(-1, -2) if n in transposed else x) for n, x in (("a", a), ("b", b))]
    return multiply.get_concrete_function(*given), multiply(*given)


SIZES = st.sampled_from([1, 16, 100, 128, 256, 512, 1024, 2048])


@pytest.mark.plain_cpu
@settings(deadline=None)
@given(
    st.sampled_from([TENSORFLOW, CALLED, ONEDNN, ONEDNN_BY_AVX2]), st.sampled_from([(), (1,), (3,)]),
    SIZES, st.sampled_from([1, 16, 100, 512]), SIZES, st.sampled_from(["", "a", "b", "ab"]), st.integers(0, 99),
)  # fmt: skip
def test_products_are_those_of_numpy(
    kernels: ProcessorKernels,
    batch: tuple[int, ...],
    rows: int,
    contracted: int,
    columns: int,
    transposed: str,
    seed: int,
) -> None:
    a, b = integers(seed, *batch, rows, contracted), integers(seed + 1, *batch, contracted, columns)
    program, found = product(kernels, a, b, transposed)
    np.testing.assert_array_equal(found, a @ b)
    assert program.outputs[0].shape == found.shape


@pytest.mark.parametrize(
    ("kernels", "sizes", "transposed", "expected"),
    [
        (CALLED, (256, 256, 1024), "", ["ConcatV2", "MklMatMul", "Slice"]),
        (CALLED, (256, 256, 512), "", ["ConcatV2", "MklMatMul", "Slice"]),
        (CALLED, (64, 256, 1024), "", ["ConcatV2", "MklMatMul", "Slice"]),
        (CALLED, (64, 512, 512), "", ["MklMatMul"]),
        (CALLED, (1024, 256, 1024), "", ["MklMatMul"]),
        (CALLED, (512, 256, 512), "a", ["ConcatV2", "ConcatV2", "MklMatMul", "Slice"]),
        (CALLED, (1024, 256, 256), "a", ["ConcatV2", "MklMatMul", "Slice"]),
        (CALLED, (1024, 256, 512), "a", ["MklMatMul"]),
        (CALLED, (256, 256, 1024), "b", ["MklMatMul"]),
        (CALLED, (256, 256, 1000), "", ["MklMatMul"]),
        (CALLED, (4, 256, 1024), "", ["MatMul"]),
        (ONEDNN_BY_AVX2, (256, 256, 1024), "", ["ConcatV2", "MatMul", "Slice"]),
        (ONEDNN_BY_AVX2, (64, 512, 2048), "b", ["MatMul"]),
        (ONEDNN, (256, 256, 1024), "", ["MatMul"]),
        (ONEDNN, (1024, 256, 256), "a", ["MatMul"]),
        (ONEDNN, (256, 1024, 256), "b", ["BatchMatMulV2"]),
        (TENSORFLOW, (256, 256, 1024), "", ["MatMul"]),
        (TENSORFLOW, (256, 1024, 256), "b", ["MatMul"]),
        (CALLED, (16, 128, 32, 128), "b", ["MklBatchMatMulV2"]),
        (CALLED, (512, 16, 16, 16), "", ["BatchMatMulV2"]),
        (CALLED, (512, 1, 128, 128), "b", ["BatchMatMulV2"]),
        (CALLED, (8, 32, 32, 32), "", ["BatchMatMulV2"]),
        (ONEDNN_BY_AVX2, (16, 128, 32, 128), "b", ["BatchMatMulV2"]),
    ],
)
def test_what_is_done(kernels: ProcessorKernels, sizes: tuple[int, ...], transposed: str, expected: list[str]) -> None:
    """`sizes`: of a batch, where there is one, of rows, contracted, and of columns."""
    *batch, rows, contracted, columns = sizes
    program, _ = product(
        kernels, integers(0, *batch, rows, contracted), integers(1, *batch, contracted, columns), transposed
    )
    told = ("MatMul", "BatchMatMulV2", "ConcatV2", "Slice", *OF_ONEDNN)
    kinds = [o.type.removeprefix("_") for o in program.graph.get_operations()]
    assert [kind for kind in kinds if kind in told] == expected


def test_nothing_is_copied_before_both_are_there() -> None:
    """What is kept for a gradient would be there twice for as long."""
    program, _ = product(CALLED, integers(0, 512, 256), integers(1, 256, 512), "a")
    copies = [o for o in program.graph.get_operations() if o.type == "ConcatV2"]
    assert len(copies) == 2
    for copy in copies:
        assert len(copy.inputs[0].op.control_inputs) == 1


@pytest.mark.parametrize("batch", [[], [2]])
def test_other_types_are_left_to_tensorflow(batch: list[int]) -> None:
    with tf.Graph().as_default():
        a, b = tf.zeros([*batch, 256, 1024], tf.float64), tf.zeros([*batch, 1024, 1024], tf.float64)
        assert CALLED.product(a, b, transpose_a=False, transpose_b=False).op.type in ("MatMul", "BatchMatMulV2")
        images = {"input_sizes": [2, 4, 4, 3], "strides": [1, 1, 1, 1], "padding": "SAME"}
        kernel, dy = tf.zeros([3, 3, 3, 5], tf.float64), tf.zeros([2, 4, 4, 5], tf.float64)
        gradient = CALLED.image_gradient(filter=kernel, out_backprop=dy, **images)
        assert gradient.op.type == "Conv2DBackpropInput"


@pytest.mark.plain_cpu
def test_here_onednn_is_called_where_tensorflow_does_not() -> None:
    here = ProcessorKernels.of_this_process()
    assert here.calls_onednn == (here.by_avx2 and not here.by_onednn and onednn_operations.are_kernels_there())
    assert onednn_operations.are_kernels_there() or not here.by_onednn
