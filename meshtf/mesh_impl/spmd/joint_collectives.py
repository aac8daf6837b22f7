"""Collectives of all cores of a mesh inside of one program, which has the slices of all: each is array arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size
from meshtf.mesh_impl.blocks import static_shape
from meshtf.planning.reductions import Reduction

_REDUCE: dict[Reduction, Callable[..., tf.Tensor]] = {
    "add": tf.reduce_sum,
    "multiply": tf.reduce_prod,
    "max": tf.reduce_max,
    "min": tf.reduce_min,
}
_REDUCE_BOOL: dict[Reduction, Callable[..., tf.Tensor]] = {
    "add": tf.reduce_any,
    "multiply": tf.reduce_all,
    "max": tf.reduce_any,
    "min": tf.reduce_all,
}


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
        own = [self.axes.index(axis) for axis in axes]
        reduce = (_REDUCE_BOOL if x.dtype == tf.bool else _REDUCE)[reduction]
        reduced = reduce(self._apart(x), own)
        self._drop(axes)
        return self._together(reduced)

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        moved = self._moved(self._apart(x), axes, dim)
        self._drop(axes)
        return self._merged(moved, dim, len(axes))

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        # The blocks' numbers stand where the senders' positions stood, and these before `concat_dim`.
        split = self._split(x, axes, split_dim)
        own, first = [self.axes.index(axis) for axis in axes], len(self.axes) + split_dim
        order = list(range(split.shape.rank))
        for n, place in enumerate(own):
            order[place], order[first + n] = first + n, place
        swapped = tf.transpose(split, order)
        senders = list(range(first, first + len(axes)))
        rest = [d for d in range(split.shape.rank) if d not in senders]
        place = len(self.axes) + concat_dim
        swapped = tf.transpose(swapped, [*rest[:place], *senders, *rest[place:]])
        return self._merged(swapped, concat_dim, len(axes))

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        split = self._split(x, axes, dim)
        own, first = [self.axes.index(axis) for axis in axes], len(self.axes) + dim
        order = list(range(split.shape.rank))
        for n, place in enumerate(own):
            order[place], order[first + n] = first + n, place
        reduce = tf.reduce_any if x.dtype == tf.bool else tf.reduce_sum
        return self._together(reduce(tf.transpose(split, order), list(range(first, first + len(axes)))))

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        return tf.gather(x, np.argsort(destinations))

    @property
    def _sizes(self) -> list[int]:
        return [axes_size((axis,), self._mesh_shape) for axis in self.axes]

    def _drop(self, axes: Sequence[str]) -> None:
        self.axes = tuple(axis for axis in self.axes if axis not in axes)

    def _apart(self, x: tf.Tensor) -> tf.Tensor:
        """[cores, ..] as [an axis, another, .., ..]."""
        return tf.reshape(x, [*self._sizes, *static_shape(x)[1:]])

    def _together(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [math.prod(self._sizes), *static_shape(x)[len(self.axes) :]])

    def _split(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """[cores, .., n, ..] as [an axis, .., .., blocks by the first of the axes, by the next, n / blocks, ..]."""
        sizes, counts = static_shape(x)[1:], [axes_size((axis,), self._mesh_shape) for axis in axes]
        cut = [*sizes[:dim], *counts, sizes[dim] // math.prod(counts), *sizes[dim + 1 :]]
        return tf.reshape(x, [*self._sizes, *cut])

    def _moved(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """With the dimensions that are these axes before another."""
        own = [self.axes.index(axis) for axis in axes]
        rest = [d for d in range(x.shape.rank) if d not in own]
        place = rest.index(len(self.axes) + dim)
        return tf.transpose(x, [*rest[:place], *own, *rest[place:]])

    def _merged(self, x: tf.Tensor, dim: int, count: int) -> tf.Tensor:
        """With so many dimensions before one as a part of it, and the cores together."""
        sizes = static_shape(x)[len(self.axes) :]
        merged = [*sizes[:dim], math.prod(sizes[dim : dim + count + 1]), *sizes[dim + count + 1 :]]
        return tf.reshape(x, [math.prod(self._sizes), *merged])
