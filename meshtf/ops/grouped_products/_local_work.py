"""A core's work on its slices of rows in groups: reshapes them to matrices, multiplies, and reshapes the result."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import ModuleType

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.grouped_products import _by_groups, _by_tiles
from meshtf.ops.grouped_products._dimensions import GroupedDimensions
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.planning.local_work.work_facts import MatrixProduct
from meshtf.planning.plan import Core


@dataclasses.dataclass(frozen=True, slots=True)
class LocalShapes:
    """The shapes of a core's slices.

    Attributes:
      dims: the dimensions of the whole tensors.
      local: the slices' sizes by name of dimension. Only groups whose matrices the core has are counted.
      axes: the mesh axes that split the groups.
    """

    dims: GroupedDimensions
    local: Mapping[str, int]
    axes: Axes

    @property
    def as_product(self) -> MatrixProduct:
        """The product of each group, if all are of the same size."""
        dims, num_groups = self.dims, self.local[self.dims.groups.name]
        rows = -(-dims.rows.size // max(dims.groups.size, 1))
        batch = self.size([*dims.sets, *dims.tables]) * num_groups
        return MatrixProduct(batch, rows, self.size(dims.of_y), self.size(dims.of_x))

    def size(self, dims: Iterable[Dimension]) -> int:
        return math.prod(self.local[d.name] for d in dims)

    def rows(self, x: tf.Tensor, shape: Shape, own: Shape) -> tf.Tensor:
        """A slice over a shape as [tables, rows, own]."""
        dims = self.dims
        in_order = aligner(shape, Shape([*dims.sets, *dims.tables, dims.rows, *own]))(x)
        return tf.reshape(in_order, [self.size([*dims.sets, *dims.tables]), dims.rows.size, self.size(own)])

    def sliced(self, x: tf.Tensor, order: Shape, shape: Shape) -> tf.Tensor:
        """A slice over a shape, from its elements in another order."""
        return aligner(order, shape)(tf.reshape(x, [self.local[d.name] for d in order]))

    def groups(self, core: Core, sizes: tf.Tensor, shape: Shape) -> RowGroups:
        """The groups whose matrices the core has, from the sizes of all groups."""
        dims, count = self.dims, self.local[self.dims.groups.name]
        counted = tf.reshape(aligner(shape, dims.sizes)(sizes), [-1, dims.counted.size])
        found = RowGroups.of(counted, dims.rows.size, self.size(dims.sets) * count)
        return found.part(core.coordinate(self.axes) * count, count) if self.axes else found


@dataclasses.dataclass(frozen=True, slots=True)
class _LocalWork(abc.ABC):
    """Work on two operands and the sizes of groups.

    Shapes are those of the whole tensors, in the order of their slices.
    """

    shapes: LocalShapes
    first: Shape
    second: Shape
    sizes: Shape
    output: Shape

    def __call__(self, core: Core, first: tf.Tensor, second: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_tiles, core, first, second, self.shapes.groups(core, sizes, self.sizes))

    def on_processors(self, core: Core, first: tf.Tensor, second: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        return self._made(_by_groups, core, first, second, self.shapes.groups(core, sizes, self.sizes))

    @abc.abstractmethod
    def _made(self, form: ModuleType, core: Core, first: tf.Tensor, second: tf.Tensor, groups: RowGroups) -> tf.Tensor:
        """The result in one of the two forms: `form` is the module `_by_tiles` or `_by_groups`."""

    def _zeros(self, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([self.shapes.local[d.name] for d in self.output], dtype)


class LocalProduct(_LocalWork):
    """Makes y from x and w."""

    __slots__ = ()

    def _made(self, form: ModuleType, core: Core, first: tf.Tensor, second: tf.Tensor, groups: RowGroups) -> tf.Tensor:
        shapes, dims = self.shapes, self.shapes.dims
        # The gradient multiplies with transposed matrices. The product reads them as they are, so no copy is made.
        is_transposed = self.second == dims.exchanged.w
        order = self.second if is_transposed else dims.w
        inner = [shapes.size(dims.of_y), shapes.size(dims.of_x)][:: 1 if is_transposed else -1]
        matrices = tf.reshape(aligner(self.second, order)(second), [shapes.size([*dims.sets, dims.groups]), *inner])
        rows = shapes.rows(first, self.first, dims.of_x)
        if not math.prod([*rows.shape, *matrices.shape]):
            return self._zeros(first.dtype)
        y = form.products(core, rows, matrices, groups, transpose_w=is_transposed)
        return shapes.sliced(y, dims.y, self.output)


class LocalSum(_LocalWork):
    """Makes w from x and y."""

    __slots__ = ()

    def _made(self, form: ModuleType, core: Core, first: tf.Tensor, second: tf.Tensor, groups: RowGroups) -> tf.Tensor:
        shapes, dims = self.shapes, self.shapes.dims
        order, own = dims.w, shapes.rows(first, self.first, dims.of_x)
        others = shapes.rows(second, self.second, dims.of_y)
        if self.output == dims.exchanged.w:  # then the sums are written in the output's order
            order, own, others = self.output, others, own
        if not math.prod([*own.shape, others.shape[-1], groups.num_matrices]):
            return self._zeros(first.dtype)
        return shapes.sliced(form.sums(core, own, others, groups), order, self.output)
