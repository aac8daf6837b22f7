"""Emits XLA's collectives inside the trace of a per-core program: replica number c of the program is core c.

Replica groups list the cores of a group by their position along the axes. XLA gathers, scatters and exchanges blocks in
that order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import DtypeError
from meshtf.layout import axes_size
from meshtf.mesh_impl.blocks import static_shape
from meshtf.mesh_impl.pjrt import _stablehlo as stablehlo
from meshtf.mesh_impl.processor_groups import ordered_groups
from meshtf.planning.local_work.reductions import Reduction

_COMBINE: dict[Reduction, str] = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}
_INTEGERS = {2: tf.int16, 4: tf.int32, 8: tf.int64}
_COMBINE_BOOL: dict[Reduction, str] = {"add": "or", "multiply": "and", "max": "or", "min": "and"}


class XlaCollectives:
    """The collectives of one program on a mesh, as `BackendCollectives` defines them."""

    def __init__(self, mesh_shape: Shape) -> None:
        self._mesh_shape = mesh_shape

    def all_reduce(self, x: tf.Tensor, axes: Sequence[str], reduction: Reduction) -> tf.Tensor:
        if self._is_nothing(x, axes):
            return x
        if x.dtype.is_floating and reduction in ("max", "min"):
            # XLA for CPUs loses a NaN among numbers, and maxima of NCCL need not keep one either.
            reduced = self.all_reduce(_in_order(x, reduction), axes, reduction)
            return tf.bitcast(_flipped(reduced), x.dtype)
        return stablehlo.collective("all_reduce", x, static_shape(x), [self._groups(axes)], combine(x.dtype, reduction))

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        size = static_shape(x)
        size[dim] *= axes_size(axes, self._mesh_shape)
        if self._is_nothing(x, axes):
            return tf.reshape(x, size)
        return stablehlo.collective("all_gather", x, size, [f"all_gather_dim = {dim} : i64", self._groups(axes)])

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        count, size = axes_size(axes, self._mesh_shape), static_shape(x)
        size[split_dim] //= count
        size[concat_dim] *= count
        if self._is_nothing(x, axes):
            return tf.reshape(x, size)
        attributes = [
            f"split_dimension = {split_dim} : i64",
            f"concat_dimension = {concat_dim} : i64",
            f"split_count = {count} : i64",
        ]
        return stablehlo.collective("all_to_all", x, size, [*attributes, self._groups(axes)])

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        size = static_shape(x)
        size[dim] //= axes_size(axes, self._mesh_shape)
        if self._is_nothing(x, axes):
            return tf.reshape(x, size)
        attributes = [f"scatter_dimension = {dim} : i64", self._groups(axes)]
        return stablehlo.collective("reduce_scatter", x, size, attributes, combine(x.dtype, "add"))

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        if list(destinations) == list(range(len(destinations))) or not x.shape.num_elements():
            return x
        pairs = np.stack([np.arange(len(destinations)), np.asarray(destinations)], axis=1)
        attributes = [f"source_target_pairs = {stablehlo.integers(pairs)}"]
        return stablehlo.collective("collective_permute", x, static_shape(x), attributes)

    def _groups(self, axes: Sequence[str]) -> str:
        return f"replica_groups = {stablehlo.integers(ordered_groups(self._mesh_shape, axes))}"

    def _is_nothing(self, x: tf.Tensor, axes: Sequence[str]) -> bool:
        """Whether there is nothing to communicate."""
        return axes_size(axes, self._mesh_shape) == 1 or not x.shape.num_elements()


def combine(dtype: tf.DType, reduction: Reduction) -> str:
    """The StableHLO operation that reduces two elements. Raises DtypeError for minima and maxima of complex numbers."""
    if dtype == tf.bool:
        return _COMBINE_BOOL[reduction]
    if dtype.is_complex and reduction in ("max", "min"):
        raise DtypeError(f"no all_reduce with reduction {reduction!r} for {dtype.name}")
    return _COMBINE[reduction]


def _in_order(x: tf.Tensor, reduction: Reduction) -> tf.Tensor:
    """Integers of the same size, in the order of the floating numbers; a NaN becomes the largest, or the smallest."""
    integer = _INTEGERS[x.dtype.size]
    nan = integer.max if reduction == "max" else integer.min
    return tf.where(tf.math.is_nan(x), tf.constant(nan, integer), _flipped(tf.bitcast(x, integer)))


def _flipped(bits: tf.Tensor) -> tf.Tensor:
    """The bits of floating numbers as integers in the same order, and back.

    Negative floating numbers have a sign and a magnitude, so that all their bits but the sign are flipped. The largest
    and the smallest integer are the bits of NaNs.
    """
    sign = tf.bitwise.right_shift(bits, tf.constant(8 * bits.dtype.size - 1, bits.dtype))
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.bitwise_and(sign, tf.constant(bits.dtype.max, bits.dtype)))
