"""Products are what NumPy has, whatever the kernels are, and done so as these are fastest.

All numbers are small integers, whose sums of products are exact in float32 in any order.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.mesh_impl.product_kernels import ProductKernels
from tests.mesh_impl.of_onednn import said_by_onednn

AVX2, AVX512 = ProductKernels(False, True, 1), ProductKernels(False, False, 1)
ONEDNN = ProductKernels(True, False, 1)


def integers(seed: int, *size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, size=size).astype(np.float32)


def operations(
    kernels: ProductKernels, rows: int, contracted: int, columns: int, transposed: str = ""
) -> tuple[list[str], tf.Graph]:
    """What multiplies, transposes, copies and cuts, in order; `transposed`: "a", "b" or both."""
    with tf.Graph().as_default() as graph:
        a = tf.compat.v1.placeholder(tf.float32, [contracted, rows] if "a" in transposed else [rows, contracted], "a")
        b = tf.compat.v1.placeholder(tf.float32, [columns, contracted] if "b" in transposed else [contracted, columns])
        kernels.product(a, b, transpose_a="a" in transposed, transpose_b="b" in transposed)
    told = ("MatMul", "BatchMatMulV2", "Transpose", "ConcatV2", "Slice")
    return [o.type for o in graph.get_operations() if o.type in told], graph


ROWS, COLUMNS = st.sampled_from([1, 16, 128, 256, 1024]), st.sampled_from([1, 100, 512, 1024, 2048])
CONTRACTED = st.sampled_from([1, 16, 100, 512])


@pytest.mark.plain_cpu
@settings(deadline=None)
@given(
    st.builds(ProductKernels, st.booleans(), st.booleans(), st.sampled_from([1, 2])),
    ROWS, CONTRACTED, COLUMNS, st.booleans(), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_products_are_those_of_numpy(
    kernels: ProductKernels, rows: int, contracted: int, columns: int, transpose_a: bool, transpose_b: bool, seed: int
) -> None:
    a, b = integers(seed, rows, contracted), integers(seed + 1, contracted, columns)
    given_a, given_b = (x.T if t else x for x, t in ((a, transpose_a), (b, transpose_b)))
    product = kernels.product(
        tf.constant(given_a), tf.constant(given_b), transpose_a=transpose_a, transpose_b=transpose_b
    )
    np.testing.assert_array_equal(product, a @ b)


@pytest.mark.parametrize(
    ("kernels", "sizes", "transposed", "expected"),
    [
        (AVX2, (256, 256, 1024), "", ["ConcatV2", "MatMul", "Slice"]),
        (AVX2, (256, 256, 1024), "a", ["ConcatV2", "MatMul", "Slice"]),
        (AVX2, (256, 256, 1024), "b", ["MatMul"]),
        (AVX2, (256, 512, 2048), "b", ["Transpose", "ConcatV2", "MatMul", "Slice"]),
        (AVX2, (64, 512, 2048), "b", ["BatchMatMulV2"]),
        (AVX2, (1024, 512, 512), "", ["ConcatV2", "MatMul", "Slice"]),
        (AVX2, (1024, 256, 256), "a", ["ConcatV2", "MatMul", "Slice"]),
        (AVX2, (1024, 256, 512), "a", ["ConcatV2", "ConcatV2", "MatMul", "Slice"]),
        (AVX2, (512, 256, 1024), "", ["MatMul"]),
        (AVX2, (256, 256, 1000), "", ["MatMul"]),
        (AVX2, (4, 256, 1024), "", ["MatMul"]),
        (ProductKernels(False, True, 2), (256, 256, 1024), "", ["MatMul"]),
        (ProductKernels(False, True, 2), (2048, 256, 2048), "", ["ConcatV2", "MatMul", "Slice"]),
        (AVX512, (256, 256, 1024), "", ["MatMul"]),
        (AVX512, (2048, 256, 512), "a", ["ConcatV2", "MatMul", "Slice"]),
        (AVX512, (4096, 256, 512), "a", ["MatMul"]),
        (ONEDNN, (256, 256, 1024), "", ["MatMul"]),
        (ONEDNN, (1024, 256, 256), "a", ["MatMul"]),
        (ONEDNN, (256, 1024, 256), "b", ["BatchMatMulV2"]),
    ],
)
def test_what_is_done(
    kernels: ProductKernels, sizes: tuple[int, int, int], transposed: str, expected: list[str]
) -> None:
    assert operations(kernels, *sizes, transposed)[0] == expected


@pytest.mark.parametrize(("sizes", "transposed"), [((1024, 256, 512), "a"), ((256, 512, 2048), "b")])
def test_nothing_is_copied_before_both_are_there(sizes: tuple[int, int, int], transposed: str) -> None:
    """What is kept for a gradient would be there twice for as long."""
    _, graph = operations(AVX2, *sizes, transposed)
    copies = [o for o in graph.get_operations() if o.type in ("Transpose", "ConcatV2")]
    assert len(copies) == 2
    for copy in copies:
        assert len(copy.inputs[0].op.control_inputs) == 1


def test_other_types_and_batches_are_left_to_tensorflow() -> None:
    for batch, dtype, kernel in (([2], tf.float32, "BatchMatMulV2"), ([], tf.float64, "MatMul")):
        with tf.Graph().as_default() as graph:
            a, b = tf.zeros([*batch, 256, 1024], dtype), tf.zeros([*batch, 1024, 1024], dtype)
            AVX2.product(a, b, transpose_a=False, transpose_b=False)
        assert graph.get_operations()[-1].type == kernel


def test_threads_are_those_that_tensorflow_was_told_of() -> None:
    said = said_by_onednn(
        "tf.config.threading.set_intra_op_parallelism_threads(3)\n"
        "from meshtf.mesh_impl.product_kernels import ProductKernels\n"
        "print(ProductKernels.of_this_process().threads)",
        {},
    )
    assert said.printed == "3"
