"""Collectives of all cores of a mesh inside of one program, which has the slices of all: each is array arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size
from meshtf.mesh_impl.blocks import merge_from_front, split_to_front, static_shape
from meshtf.planning.local_work.reductions import Reduction, stacked_reduce, stacked_sum


class JointCollectives:
    """One collective, as `BackendCollectives` defines it, of a tensor [cores, ..] that has the slices of the cores that
    differ along some axes. Dimensions count without the first.

    Attributes:
      axes: of the mesh, in its order, along which slices differ: of what it is given, then of what it gives.
    """

    def __init__(self, mesh_shape: Shape, axes: Axes) -> None:
        self._mesh_shape = mesh_shape
        self.axes = axes

    def all_reduce(self, x: tf.Tensor, axes: Sequence[str], reduction: Reduction) -> tf.Tensor:
        senders = self._in_front(x, axes)
        self.axes = self._others(axes)
        return stacked_reduce(senders, reduction)

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        senders = self._in_front(x, axes)
        self.axes = self._others(axes)
        return merge_from_front(senders, dim + 1)

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        return self._among_others(merge_from_front(self._blocks(x, axes, split_dim), concat_dim + 2), axes)

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        return self._among_others(stacked_sum(self._blocks(x, axes, dim)), axes)

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        return tf.gather(x, np.argsort(destinations))

    def _others(self, axes: Sequence[str]) -> Axes:
        return tuple(axis for axis in self.axes if axis not in axes)

    def _size(self, axes: Sequence[str]) -> int:
        return axes_size(tuple(axes), self._mesh_shape)

    def _in_front(self, x: tf.Tensor, axes: Sequence[str]) -> tf.Tensor:
        """[cores, ..] as [positions along these axes, cores along the others, ..]."""
        others, sizes = self._others(axes), static_shape(x)[1:]
        apart = tf.reshape(x, [*(self._size([axis]) for axis in self.axes), *sizes])
        order = [self.axes.index(axis) for axis in (*axes, *others)]
        moved = tf.transpose(apart, [*order, *range(len(order), apart.shape.rank)])
        return tf.reshape(moved, [self._size(axes), self._size(others), *sizes])

    def _among_others(self, x: tf.Tensor, axes: Sequence[str]) -> tf.Tensor:
        """[positions along these axes, cores along the others, ..] as [cores, ..]."""
        now, sizes = [*axes, *self._others(axes)], static_shape(x)[2:]
        apart = tf.reshape(x, [*(self._size([axis]) for axis in now), *sizes])
        order = [now.index(axis) for axis in self.axes]
        moved = tf.transpose(apart, [*order, *range(len(order), apart.shape.rank)])
        return tf.reshape(moved, [self._size(self.axes), *sizes])

    def _blocks(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """[cores, .., blocks * n, ..] as [senders, receivers, cores along the other axes, .., n, ..]."""
        cut = split_to_front(self._in_front(x, axes), dim + 2, self._size(axes))
        return tf.transpose(cut, [1, 0, *range(2, cut.shape.rank)])
