"""How TensorFlow's kernels multiply two matrices fastest on the processor that they run on.

Where TensorFlow does not compute by oneDNN as a whole, Eigen divides a product into blocks, copies these and hands them
to oneDNN's product of matrices (TensorFlow's `eigen_contraction_kernel.h`). A block has as many columns as a thread's
share of them; where these take a multiple of 4 KiB, all rows of the block want the same few places of a cache, and the
kernel that oneDNN has for processors without AVX-512 takes up to twice as long. So a product whose columns would be
laid out so gets a few more, of zeros. Copying a transposed first matrix into blocks is as slow for the same reason.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.mesh_impl.onednn_kernels import has_onednn_kernels, multiplies_by_avx2
from meshtf.mesh_impl.virtual_cpus import num_processors

_ADDED = 16
"""Columns, or rows: as many floats as a line of the cache has."""
_FEW_ROWS = 256
"""Up to which one thread takes a product's columns in one block: with 512 it does not. On two cores of an EPYC that
were told to do without AVX-512, products of 32 to 256 rows and 1024, 2048 or 4096 columns took 0.5 to 0.8 of the time
with more columns, with 512 or 1536 columns 0.65 to 0.9, copies in it, but for the smallest."""
_SMALLEST = 1 << 21
"""Multiplications of a product from which on that is so."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProductKernels:
    """Those of one process.

    Attributes:
      by_onednn: whether TensorFlow computes by oneDNN as a whole.
      by_avx2: whether a product of float32 matrices is done by AVX2, whoever does it.
      threads: that share a product.
    """

    by_onednn: bool
    by_avx2: bool
    threads: int

    @classmethod
    def of_this_process(cls) -> ProductKernels:
        """As TensorFlow has them here, with the threads that it has been told of."""
        threads = tf.config.threading.get_intra_op_parallelism_threads() or num_processors()
        return cls(has_onednn_kernels(), multiplies_by_avx2(), threads)

    def product(self, a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
        """`tf.linalg.matmul`, by the kernel and from the operands with which it takes the least time."""
        if a.shape.rank != 2 or a.dtype != tf.float32:
            return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        rows, contracted = a.shape.as_list()[::-1] if transpose_a else a.shape.as_list()
        columns = b.shape.as_list()[0 if transpose_b else 1]
        more_rows = transpose_a and self._copies_rows_slowly(rows, contracted, columns)
        more_columns = self._multiplies_columns_slowly(rows, contracted, columns)
        if transpose_b and more_columns:
            more_columns = _is_worth_transposing(rows, contracted)
            if more_columns:
                b, transpose_b = tf.transpose(_behind(a, b)), False
        if more_rows or more_columns:
            zeros = tf.zeros([contracted, _ADDED])
            wide_a = tf.concat([_behind(b, a), zeros], 1) if more_rows else a
            wide_b = tf.concat([_behind(a, b), zeros], 1) if more_columns else b
            product = tf.linalg.matmul(wide_a, wide_b, transpose_a=transpose_a, transpose_b=transpose_b)
            return tf.slice(product, [0, 0], [rows, columns])
        if transpose_b and not transpose_a and _is_faster_in_a_batch(rows, contracted, columns):
            return tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_y=True)
        return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)

    def _multiplies_columns_slowly(self, rows: int, contracted: int, columns: int) -> bool:
        if self.by_onednn or not self.by_avx2 or rows * contracted * columns < _SMALLEST:
            return False
        if self.threads == 1:
            return columns % 512 == 0 and (rows <= _FEW_ROWS or columns == 512)
        return columns % (1024 * self.threads) == 0

    def _copies_rows_slowly(self, rows: int, contracted: int, columns: int) -> bool:
        """Where there are many columns, each copy is used for as many products; and to copy more rows takes longer."""
        is_large = rows * contracted * columns >= _SMALLEST
        return not self.by_onednn and is_large and rows in (1024, 2048) and columns <= 512


def _is_worth_transposing(rows: int, contracted: int) -> bool:
    """Whether a matrix that is read transposed is to be transposed first, if the product is slow otherwise: with fewer
    rows it takes longer than it saves, with a smaller contraction the kernel is not so slow."""
    return rows >= 128 and contracted >= 512


def _behind(other: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The same, once the other is there: what is kept for a gradient would be copied as soon as it is made."""
    with tf.control_dependencies([other]):
        return tf.identity(x)


def _is_faster_in_a_batch(rows: int, contracted: int, columns: int) -> bool:
    """Whether TensorFlow's product of batches is the faster one of two matrices, [rows, contracted] and [columns,
    contracted].

    With oneDNN it packs the second, read transposed, better: of 64 rows and a contraction of 1024 it takes 0.4 to 0.7
    of the other's time, with one thread and with two; of a few thousand rows about as long, unless there are few
    columns. Small products it divides among threads that cost more than they do, and of fewer than 16 rows it is slow.
    Elsewhere the two are one kernel.
    """
    is_large = contracted >= 512 and contracted * columns >= 1 << 18
    return rows >= 16 and is_large and (rows <= 1024 or 2 * columns <= contracted)
