"""How TensorFlow's kernels multiply matrices, and convolve, fastest on the processor that they run on.

On most processors without AVX-512 TensorFlow does not compute by oneDNN as a whole. Its own kernels cut a product into
blocks, copy these and hand them to oneDNN; those of a batch they divide one after the other. So here oneDNN's are
called. On two cores of an EPYC that were told to do without AVX-512, with one thread and with two, products of 64 to
2,048 rows and columns took 0.8 of the time in the mean, where the second matrix is read transposed 0.7, and 0.2 at the
least. Batches of 128 x 128 by 32 took 0.25 to 0.4, gradients of convolutions by images 0.03 to 0.6.

Of few rows or columns oneDNN has a product by AVX2 that copies nothing (its `nocopy_checker_avx2`). Where what it reads
has rows that are a multiple of 2 KiB long, they all want the same few places of a cache, and it takes up to twice as
long. So such a matrix gets a few more columns, of zeros.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from meshtf.mesh_impl.onednn_kernels import multiplies_by_avx2
from meshtf.tensorflow_private import onednn_operations

_ADDED = 16
"""Columns: as many floats as a line of the cache has."""
_FEW = 0.0038
"""oneDNN's: what 1 / rows + 1 / columns come to, at the least, where it copies nothing."""
_COLUMNS_OF_2_KIB = 512
_FEWEST_ROWS = {_COLUMNS_OF_2_KIB: 256, 2 * _COLUMNS_OF_2_KIB: 32}
"""Of a product for which more columns of the second matrix are worth a copy, where it has a multiple of so many."""
_SMALLEST = 1 << 21
"""Multiplications from which on all this gains something."""
_SMALLEST_OF_A_BATCH = 1 << 14
"""Multiplications of one product up to which TensorFlow's own kernel divides a batch as a whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessorKernels:
    """Those of one process.

    Attributes:
      by_onednn: whether TensorFlow computes by oneDNN as a whole.
      by_avx2: whether oneDNN multiplies float32 by AVX2.
      calls_onednn: whether it is called here, where TensorFlow would not.
    """

    by_onednn: bool
    by_avx2: bool
    calls_onednn: bool

    @classmethod
    def of_this_process(cls) -> ProcessorKernels:
        """As TensorFlow has them here."""
        by_onednn, by_avx2 = onednn_operations.is_onednn_on(), multiplies_by_avx2()
        return cls(by_onednn, by_avx2, by_avx2 and not by_onednn and onednn_operations.are_kernels_there())

    def product(self, a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
        """`tf.linalg.matmul` in a graph, by the kernel and from the operands with which it takes the least time."""
        size = a.shape.num_elements() * b.shape.as_list()[-2 if transpose_b else -1]
        if a.dtype != tf.float32 or size < _SMALLEST:
            return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        if a.shape.rank == 2:
            return self._product_of_two(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        if self.calls_onednn and size > _SMALLEST_OF_A_BATCH * a.shape[0] and 1 not in (*a.shape[1:], *b.shape[1:]):
            return onednn_operations.batch_product(a, b, adj_x=transpose_a, adj_y=transpose_b)
        return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)

    def image_gradient(self, **arguments: Any) -> tf.Tensor:
        """`tf.raw_ops.Conv2DBackpropInput` in a graph."""
        if self.calls_onednn and arguments["filter"].dtype == tf.float32:
            return onednn_operations.image_gradient(**arguments)
        return tf.raw_ops.Conv2DBackpropInput(**arguments)

    def _product_of_two(self, a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
        rows, contracted = a.shape.as_list()[::-1] if transpose_a else a.shape.as_list()
        columns = b.shape.as_list()[0 if transpose_b else 1]
        matmul = onednn_operations.product if self.calls_onednn else tf.linalg.matmul
        if self.by_avx2 and (self.by_onednn or self.calls_onednn) and 1 / rows + 1 / columns >= _FEW:
            wide_a = _with_more_columns(a, b) if transpose_a and rows % _COLUMNS_OF_2_KIB == 0 else a
            wide_b = _with_more_columns(b, a) if not transpose_b and _is_worth_a_copy(rows, columns) else b
            product = matmul(wide_a, wide_b, transpose_a=transpose_a, transpose_b=transpose_b)
            return product if wide_a is a and wide_b is b else tf.slice(product, [0, 0], [rows, columns])
        if self.by_onednn and transpose_b and not transpose_a and _is_faster_in_a_batch(rows, contracted, columns):
            return tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_y=True)
        return matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def _is_worth_a_copy(rows: int, columns: int) -> bool:
    """Whether a second matrix of so many columns is."""
    return any(columns % multiple == 0 and rows >= fewest for multiple, fewest in _FEWEST_ROWS.items())


def _with_more_columns(x: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Once the other operand is there, too: what is kept for a gradient would be copied as soon as it is made."""
    with tf.control_dependencies([other]):
        x = tf.identity(x)
    return tf.concat([x, tf.zeros([x.shape[0], _ADDED])], 1)


def _is_faster_in_a_batch(rows: int, contracted: int, columns: int) -> bool:
    """Whether TensorFlow's product of batches is the faster one of two matrices, [rows, contracted] and [columns,
    contracted].

    With AVX-512 it packs the second, read transposed, better: of 64 rows and a contraction of 1024 it takes 0.4 to 0.7
    of the other's time, with one thread and with two; of a few thousand rows about as long, unless there are few
    columns. Small products it divides among threads that cost more than they do, and of fewer than 16 rows it is slow.
    """
    is_large = contracted >= 512 and contracted * columns >= 1 << 18
    return rows >= 16 and is_large and (rows <= 1024 or 2 * columns <= contracted)
