"""Lookups by index along a named dimension: gather, its gradient scatter-add, and one-hot.

If that dimension of the table is split, each core looks up all indices in its own part, and reads zeros for rows of
other cores. So the cores' results add up. Take a table of four rows on two cores, and the indices 1 and 2:

    core 0, with rows 0 and 1    row 1    zeros
    core 1, with rows 2 and 3    zeros    row 2
    their sum                    row 1    row 2
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, ShapeLike, convert_to_dimension
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import Axes, restricted
from meshtf.ops.algebra.broadcasting import aligner, union
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.indexing.local_gather import LookupShapes, rows_at, rows_in_memory_at, shifted, sums_at
from meshtf.ops.inputs.constants import constant
from meshtf.ops.inputs.scalars import Scalar, scalar_constant
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import cheapest_splits, layout_over


class GatherOperation(Operation):
    """Rows of a table by index: the einsum of the table with one-hot indices, without the product.

    If the dimension is split, each core reads the rows that its part holds, and zeros for others. That leaves a pending
    sum (an "or" for bool). If it sends fewer bytes, the table is gathered instead.
    """

    takes_padding = True
    mapped = "all inputs"

    def __init__(
        self, weights: Tensor, indices: Tensor, dim: Dimension, output_shape: Shape, name: str = "gather"
    ) -> None:
        super().__init__([weights, indices], [(output_shape, weights.dtype)], name=name)
        self.dim = dim

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (weights, indices), (dy,) = self.inputs, grad_ys
        assert dy is not None
        return [scatter_add(dy, indices, self.dim, weights.shape), None]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return self._splits(layouts)[self.dim.name]

    def lower(self, planner: Planner) -> None:
        gather_on_cores(planner, self, self.dim)

    def _splits(self, layouts: LayoutTable) -> dict[str, Axes]:
        return cheapest_splits(self.inputs, self.outputs[0], layouts)


def gather_on_cores(planner: Planner, operation: Operation, dim: Dimension, facts: WorkFacts = NOTHING_KNOWN) -> None:
    """Lowers a lookup of (table, indices): each core reads its own rows, or all rows of a table that is gathered."""
    (weights, indices), (output,) = operation.inputs, operation.outputs
    splits = cheapest_splits(operation.inputs, output, planner.layouts)
    # A core finds zeros for rows of other cores. So the cores' results add up to the result.
    axes, layout = splits[dim.name], layout_over(output.shape, splits)
    values = [planner.read(x, layout_over(x.shape, splits)) for x in operation.inputs]
    emit = Lookup.of(weights.shape, indices.shape, dim, output.shape, axes)
    spec = (output.shape, output.dtype, layout)
    planner.write(output, planner.compute("gather", emit, values, [spec], pending=axes, facts=facts)[0])


@dataclasses.dataclass(frozen=True, slots=True)
class Lookup:
    """Local work: rows of a table along a dimension that is split over axes, by indices of this shape.

    to_table, to_indices, to_output: bring slices into the orders of `LookupShapes`, and back.
    batch_ndims: the number of dimensions that table and indices share.
    is_one_for_all: whether there is one index for all of these.
    """

    dim: Dimension
    indices: Shape
    axes: Axes
    to_table: Callable[[tf.Tensor], tf.Tensor]
    to_indices: Callable[[tf.Tensor], tf.Tensor]
    to_output: Callable[[tf.Tensor], tf.Tensor]
    batch_ndims: int
    is_one_for_all: bool

    @classmethod
    def of(cls, table: Shape, indices: Shape, dim: Dimension, output: Shape, axes: Axes) -> Lookup:
        """The lookup for a table and a result with their dimensions in these orders."""
        # A single index is looked up in each row of the dimensions before it, so that the table need not be transposed.
        before = None if indices.ndims else Shape(table.dims[: table.axis(dim)])
        shapes = LookupShapes.of(table, indices if before is None else before, dim)
        return cls(
            dim,
            indices,
            axes,
            aligner(table, shapes.table),
            aligner(indices, shapes.indices),
            aligner(shapes.rows, output),
            shapes.batch.ndims,
            is_one_for_all=before is not None,
        )

    def __call__(self, core: Core, table: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        return self._looked_up(core, table, where, rows_at)

    def on_processors(self, core: Core, table: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        return self._looked_up(core, table, where, rows_in_memory_at)

    def _looked_up(self, core: Core, table: tf.Tensor, where: tf.Tensor, rows: Callable[..., tf.Tensor]) -> tf.Tensor:
        table = self.to_table(table)
        where = shifted(core, self.to_indices(where), self.axes, table.shape[self.batch_ndims])
        if self.is_one_for_all:
            where = tf.broadcast_to(where, table.shape[: self.batch_ndims])
        return self.to_output(rows(table, where, self.batch_ndims))


class ScatterAddOperation(Operation):
    """The sum of the updates of each index along `dim`. Indices outside are dropped.

    Updates [batch, free, rest] by indices [batch, free] give [batch, dim, rest], all in any order. If free dimensions
    are split, each core has one term of a sum. If `dim` is split, a core keeps the updates that fall into its part.
    """

    passes_pending_sums = True
    takes_padding = True
    mapped = "all inputs"

    def __init__(
        self,
        updates: Tensor,
        indices: Tensor,
        dim: Dimension,
        output_shape: Shape,
        name: str = "scatter_add",
    ) -> None:
        super().__init__([updates, indices], [(output_shape, updates.dtype)], name=name)
        self.dim = dim

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (updates, indices), (dy,) = self.inputs, grad_ys
        assert dy is not None
        return [gather(dy, indices, self.dim, output_shape=updates.shape), None]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        splits, shape = cheapest_splits(self.inputs, self.outputs[0], layouts), self.outputs[0].shape
        return tuple(a for name, axes in splits.items() if not shape.has(name) for a in axes)

    def lower(self, planner: Planner) -> None:
        (updates, indices), (output,) = self.inputs, self.outputs
        splits = cheapest_splits(self.inputs, output, planner.layouts)
        layout, axes = layout_over(output.shape, splits), splits[self.dim.name]
        own, where = (layout_over(x.shape, splits) for x in self.inputs)
        held = planner.read_operands_as_they_are(self)[0]  # only updates may be pending, indices never are
        # A scatter of terms gives terms of the result. So the sum over cores can wait.
        is_term = held.pending and held.layout == own
        values = [held if is_term else planner.read(updates, own), planner.read(indices, where)]
        shapes = LookupShapes.of(output.shape, indices.shape, self.dim)
        to_rows, to_indices = aligner(updates.shape, shapes.rows), aligner(indices.shape, shapes.indices)
        to_output, ndims = aligner(shapes.table, output.shape), shapes.batch.ndims
        n = layout.slice_shape(output.shape, planner.mesh_shape)[output.shape.axis(self.dim)]

        def emit(core: Core, rows: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
            return to_output(sums_at(to_rows(rows), shifted(core, to_indices(where), axes, n), ndims, n))

        spec = (output.shape, output.dtype, layout)
        pending = tuple(dict.fromkeys((*values[0].pending, *self.pending_axes(planner.layouts))))
        flops = math.prod(values[0].slice_shape)
        facts = WorkFacts(
            scatters_elements=shapes.rows.ndims == shapes.indices.ndims,
            places_part=None if axes else _placed_along(values[0], values[1], output.shape.axis(self.dim), spec[0]),
        )
        (sums,) = planner.compute("scatter_add", emit, values, [spec], pending=pending, flops=flops, facts=facts)
        planner.write(output, sums)


class OneHotOperation(Operation):
    """`on` where the position along the last dimension is the index, and `off` elsewhere."""

    takes_padding = True
    mapped = "by name"

    def __init__(
        self, indices: Tensor, dim: Dimension, on: np.ndarray, off: np.ndarray, dtype: tf.DType, name: str = "one_hot"
    ) -> None:
        super().__init__([indices], [(indices.shape + [dim], dtype)], name=name)
        self.on, self.off = on, off

    def lower(self, planner: Planner) -> None:
        (indices,), (output,) = self.inputs, self.outputs
        layout = planner.layouts[output]
        value = planner.read(indices, restricted(layout, output.shape, indices.shape))
        axes, n = layout.axes[-1], layout.slice_shape(output.shape, planner.mesh_shape)[-1]
        on, off, dtype = self.on, self.off, output.dtype

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.one_hot(shifted(core, x, axes, n), n, on, off, dtype=dtype)

        spec, facts = (output.shape, dtype, layout), WorkFacts(expands=True)
        planner.write(output, planner.compute("one_hot", emit, [value], [spec], facts=facts)[0])


@language_function
def gather(weights: Tensor, indices: Tensor | int, dim: DimensionLike, output_shape: ShapeLike | None = None) -> Tensor:
    """`weights` at `indices` along a dimension; zeros (False) for an index that is negative or not below its size.

    Args:
      weights: a tensor of any dtype.
      indices: int32 or int64, or a whole number. A dimension that `weights` also has is the same index in both.
      dim: a dimension of `weights`, and not of `indices`.
      output_shape: the order of the result's dimensions. By default, those of `indices` precede the rest of `weights`.

    Raises:
      ShapeError: `weights` lacks the dimension, sizes disagree, or `output_shape` has other dimensions.
      DtypeError: the indices are not int32 or int64.

    Examples:
      >>> table, ids = mtf.ones(mesh, "vocab:16 d_model:8"), mtf.zeros(mesh, "batch:4 length:6", tf.int32)
      >>> mtf.gather(table, ids, "vocab")
      gather [batch:4 length:6 d_model:8] float32
      >>> tens = 10 * mtf.range(mesh, ("n", 3))
      >>> value(mtf.gather(tens, mtf.constant(mesh, [2, 9], "i:2", tf.int32), "n"))
      array([20,  0], dtype=int32)
    """
    own = reduced_dimension(check_tensor(weights), dim)
    if not isinstance(indices, Tensor):
        indices = constant(weights.mesh, _known_index(indices, own), dtype=tf.int32)
    check_indices(indices, own)
    shape = Shape([d for d in union([indices.shape, weights.shape]) if d.name != own.name])
    wanted = shape if output_shape is None else shape.only(output_shape)
    if wanted.ndims != shape.ndims:
        raise ShapeError(f"output_shape [{wanted}] must have the dimensions [{shape}], in any order")
    return GatherOperation(weights, indices, own, wanted).outputs[0]


def scatter_add(updates: Tensor, indices: Tensor, dim: Dimension, output_shape: Shape) -> Tensor:
    """Zeros over `output_shape`, plus the updates at their indices along `dim`.

    `updates` has the dimensions of `indices`, and those of the output without `dim`; see `ScatterAddOperation`.
    """
    check_indices(indices, dim)
    rows = LookupShapes.of(output_shape, indices.shape, dim).rows
    if set(rows.dims) != set(updates.shape.dims):
        raise ShapeError(f"updates [{updates.shape}] must have the dimensions [{rows}], in any order")
    return ScatterAddOperation(updates, indices, dim, output_shape).outputs[0]


@language_function
def one_hot(
    indices: Tensor,
    output_dim: DimensionLike,
    on_value: Scalar = 1.0,
    off_value: Scalar = 0.0,
    dtype: tf.DType = tf.float32,
    name: str | None = None,
) -> Tensor:
    """`on_value` at the index and `off_value` elsewhere: [..., output_dim]. An index outside gives only `off_value`.

    Args:
      indices: [...] int32 or int64.
      output_dim: the new dimension, into which the indices point.
      on_value: the value at the index.
      off_value: the value elsewhere.
      dtype: the dtype of the result.
      name: the operation's name.

    Raises:
      ShapeError: `indices` has the dimension already.
      DtypeError: `indices` is not int32 or int64, or `dtype` cannot hold a value.

    Examples:
      >>> ids = mtf.constant(mesh, [2, 0], "length:2", tf.int32)
      >>> value(mtf.one_hot(ids, ("vocab", 3)))
      array([[0., 0., 1.],
             [1., 0., 0.]], dtype=float32)
    """
    dim, dtype = convert_to_dimension(output_dim), dtype_of(dtype)
    if dim is None:
        raise ShapeError("one_hot needs an output_dim")
    check_indices(check_tensor(indices, "index"), dim)
    on, off = scalar_constant(on_value, dtype), scalar_constant(off_value, dtype)
    return OneHotOperation(indices, dim, on, off, dtype, name or "one_hot").outputs[0]


def check_indices(indices: Tensor, dim: Dimension) -> None:
    if indices.dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"indices must be int32 or int64, not {indices.dtype.name}; convert with mtf.cast")
    if indices.shape.has(dim):
        raise ShapeError(
            f'the indices [{indices.shape}] have dimension "{dim.name}", along which they point; '
            f"rename it in one of the two (mtf.rename_dimension)"
        )


def _placed_along(updates: Value, indices: Value, axis: int, shape: Shape) -> int | None:
    """The axis along which a core's updates are one contiguous part of the sums, without any addition; else None."""
    sizes = zip(updates.shape, updates.slice_shape, strict=True)
    longer = [d.name for d, size in sizes if size > 1]
    kept = [d.name for n, d in enumerate(shape) if n != axis and d.name in longer]
    return axis if math.prod(indices.slice_shape) == 1 and longer == kept else None


def _known_index(index: Any, dim: Dimension) -> int:
    """A Python or NumPy integer as an index; -1 if it is outside."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool):
        raise DtypeError(f"indices must be an mtf.Tensor or a whole number, not {index!r}")
    return int(index) if 0 <= index < dim.size else -1
