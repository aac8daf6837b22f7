"""What a core does with its slices of rows in groups: brings them to matrices, multiplies them, and brings back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.grouped_products import _by_groups, _by_tiles
from meshtf.ops.grouped_products._dimensions import GroupedDimensions
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.planning.plan import Core
from meshtf.planning.work_facts import MatrixProduct


@dataclasses.dataclass(frozen=True, slots=True)
class LocalShapes:
    """Of a core's slices.

    Attributes:
      dims: of the whole tensors.
      local: sizes of slices, by name of dimension; the groups are those of which the core has matrices.
      axes: of the mesh, which split the groups.
    """

    dims: GroupedDimensions
    local: Mapping[str, int]
    axes: Axes

    @property
    def as_product(self) -> MatrixProduct:
        """Of each group, where all are even."""
        dims, num_groups = self.dims, self.local[self.dims.groups.name]
        rows = -(-dims.rows.size // max(dims.groups.size, 1))
        batch = self.size([*dims.sets, *dims.tables]) * num_groups
        return MatrixProduct(batch, rows, self.size(dims.of_y), self.size(dims.of_x))

    def size(self, dims: Iterable[Dimension]) -> int:
        return math.prod(self.local[d.name] for d in dims)

    def rows(self, x: tf.Tensor, shape: Shape, own: Shape) -> tf.Tensor:
        """[tables, rows, own] of a slice over a shape."""
        dims = self.dims
        in_order = aligner(shape, Shape([*dims.sets, *dims.tables, dims.rows, *own]))(x)
        return tf.reshape(in_order, [self.size([*dims.sets, *dims.tables]), dims.rows.size, self.size(own)])

    def sliced(self, x: tf.Tensor, order: Shape, shape: Shape) -> tf.Tensor:
        """A slice over a shape, of its elements in another order."""
        return aligner(order, shape)(tf.reshape(x, [self.local[d.name] for d in order]))

    def groups(self, core: Core, sizes: tf.Tensor, shape: Shape) -> RowGroups:
        """From the sizes of all groups, those of which the core has matrices."""
        dims, count = self.dims, self.local[self.dims.groups.name]
        counted = tf.reshape(aligner(shape, dims.sizes)(sizes), [-1, dims.counted.size])
        found = RowGroups.of(counted, dims.rows.size, self.size(dims.sets) * count)
        return found.part(core.coordinate(self.axes) * count, count) if self.axes else found


@dataclasses.dataclass(frozen=True, slots=True)
class LocalProduct:
    """y of x and w."""

    shapes: LocalShapes
    x: Shape
    w: Shape
    sizes: Shape
    y: Shape

    def __call__(self, core: Core, x: tf.Tensor, w: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_tiles.products, core, x, w, sizes)

    def on_processors(self, core: Core, x: tf.Tensor, w: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_groups.products, core, x, w, sizes)

    def _made(
        self, products: Callable[..., tf.Tensor], core: Core, x: tf.Tensor, w: tf.Tensor, sizes: tf.Tensor
    ) -> tf.Tensor:
        shapes, dims = self.shapes, self.shapes.dims
        is_transposed = self.w == dims.exchanged.w
        order = self.w if is_transposed else dims.w
        inner = [shapes.size(dims.of_y), shapes.size(dims.of_x)][:: 1 if is_transposed else -1]
        matrices = tf.reshape(aligner(self.w, order)(w), [shapes.size([*dims.sets, dims.groups]), *inner])
        rows, groups = shapes.rows(x, self.x, dims.of_x), shapes.groups(core, sizes, self.sizes)
        if not math.prod([*rows.shape, *matrices.shape]):
            return tf.zeros([shapes.local[d.name] for d in self.y], x.dtype)
        return shapes.sliced(products(core, rows, matrices, groups, transpose_w=is_transposed), dims.y, self.y)


@dataclasses.dataclass(frozen=True, slots=True)
class LocalSum:
    """w of x and y."""

    shapes: LocalShapes
    x: Shape
    y: Shape
    sizes: Shape
    w: Shape

    def __call__(self, core: Core, x: tf.Tensor, y: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_tiles.sums, core, x, y, sizes)

    def on_processors(self, core: Core, x: tf.Tensor, y: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_groups.sums, core, x, y, sizes)

    def _made(
        self, sums: Callable[..., tf.Tensor], core: Core, x: tf.Tensor, y: tf.Tensor, sizes: tf.Tensor
    ) -> tf.Tensor:
        shapes, dims = self.shapes, self.shapes.dims
        order, own, others = dims.w, shapes.rows(x, self.x, dims.of_x), shapes.rows(y, self.y, dims.of_y)
        if self.w == dims.exchanged.w:  # written in the order in which it is wanted
            order, own, others = self.w, others, own
        groups = shapes.groups(core, sizes, self.sizes)
        if not math.prod([*own.shape, others.shape[-1], groups.num_matrices]):
            return tf.zeros([shapes.local[d.name] for d in self.w], x.dtype)
        return shapes.sliced(sums(core, own, others, groups), order, self.w)
