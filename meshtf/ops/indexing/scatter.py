"""Changes some elements of a tensor, by index along a named dimension."""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, unused_name
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.layout import Axes, restricted
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.algebra.broadcasting import aligner, union
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.comparisons import equal, greater_equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.indexing.gather import check_indices, gather
from meshtf.ops.indexing.gather import scatter_add as sums_by_index
from meshtf.ops.indexing.local_gather import LookupShapes, shifted
from meshtf.ops.indexing.replaced import ReplacedOperation
from meshtf.ops.indexing.replaced_rows import ReplacedRowsOperation
from meshtf.ops.inputs.constants import range as range_along
from meshtf.ops.rearranging.reshape import reshape
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over


class LastIndexOperation(Operation):
    """The number of the last index that names each place along a dimension, or -1. Indices outside name no place.

    Indices [batch, numbers], in this order, give int32 [batch, dim].
    """

    mapped = "by name"

    def __init__(self, indices: Tensor, dim: Dimension, name: str = "last_index") -> None:
        super().__init__([indices], [(Shape([*indices.shape.dims[:-1], dim]), tf.int32)], name=name)

    def lower(self, planner: Planner) -> None:
        (indices,), (output,) = self.inputs, self.outputs
        splits = self._splits(planner.layouts)
        value = planner.read(indices, layout_over(indices.shape, splits))
        layout = layout_over(output.shape, splits)
        along, axes = splits[indices.shape.dims[-1].name], splits[output.shape.dims[-1].name]
        size, count = layout.slice_shape(output.shape, planner.mesh_shape), value.slice_shape[-1]

        def emit(core: Core, where: tf.Tensor) -> tf.Tensor:
            if 0 in size:  # where TensorFlow's kernels refuse whatever would be ignored
                return tf.zeros(size, tf.int32)
            places = tf.reshape(shifted(core, where, axes, size[-1]), [math.prod(size[:-1]), count])
            batch = tf.broadcast_to(tf.range(places.shape[0], dtype=places.dtype)[:, None], places.shape)
            first = core.coordinate(along) * count if along else 0
            numbers = tf.broadcast_to(tf.range(count) + first, places.shape)
            nowhere = tf.fill([math.prod(size[:-1]), size[-1]], -1)
            last = tf.tensor_scatter_nd_max(
                nowhere, tf.stack([batch, places], -1), numbers, bad_indices_policy="IGNORE"
            )
            return tf.reshape(last, size)

        (last,) = planner.compute("last_index", emit, [value], [(output.shape, tf.int32, layout)])
        planner.write(output, planner.all_reduce(last, along, "max"))

    def _splits(self, layouts: LayoutTable) -> dict[str, Axes]:
        """The output's splits, and a split of the indices over the axes that are left."""
        (indices,), (output,) = self.inputs, self.outputs
        splits = {d.name: axes for d, axes in zip(output.shape, layouts[output].axes, strict=True)}
        used = {a for axes in splits.values() for a in axes}
        own = layouts[indices].axes[-1]
        return {**splits, indices.shape.dims[-1].name: () if used & set(own) else own}


class ReplacedElementOperation(ReplacedOperation):
    """x with one element along a dimension replaced, for each place of the other dimensions, at an index along it.

    x is [batch, dim, rest], indices [batch] and updates [batch, rest]. Dimensions may be in any order, and indices may
    lack some of the batch. An index outside replaces nothing. The work is done in the memory of x if nothing else holds
    it.
    """

    @property
    def called(self) -> str:
        return "replaced_element"

    def lower(self, planner: Planner) -> None:
        (x, indices, updates), (output,) = self.inputs, self.outputs
        layout, axis = planner.layouts[output], x.shape.axis(self._dim)
        values = planner.read_operands(self, [restricted(layout, x.shape, each.shape) for each in self.inputs])
        size, axes = layout.slice_shape(x.shape, planner.mesh_shape), layout.axes[axis]
        place, row = aligner(indices.shape, x.shape), aligner(updates.shape, x.shape)
        is_by_rows = all(x.shape.axis(d) < axis for d in indices.shape)

        def emit(core: Core, s: tf.Tensor, index: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            where, rows = place(shifted(core, index, axes, size[axis])), row(new)
            if is_by_rows:
                return _with_rows(s, where, rows, axis)
            places = tf.reshape(tf.range(size[axis], dtype=where.dtype), [-1] + [1] * (len(size) - axis - 1))
            return tf.where(tf.equal(where, places), rows, s)

        (value,) = planner.compute(
            "replaced element", emit, values, [(x.shape, x.dtype, layout)], flops=math.prod(values[2].slice_shape)
        )
        planner.write(output, value)


def _with_rows(x: tf.Tensor, where: tf.Tensor, rows: tf.Tensor, axis: int) -> tf.Tensor:
    """x [.., n, ..] with one row of each n replaced.

    `where` and `rows` have the rank of x. `where` has size 1 in place of n and of all later sizes.
    """
    size = x.shape.as_list()
    if 0 in size:  # where TensorFlow's kernels refuse whatever would be ignored
        return x
    leading, rest = math.prod(size[:axis]), math.prod(size[axis + 1 :])
    index = tf.reshape(tf.broadcast_to(where, size[:axis] + [1] * (len(size) - axis)), [leading])
    places = tf.stack([tf.range(leading, dtype=index.dtype), index], -1)
    flat = tf.reshape(x, [leading, size[axis], rest])
    new = tf.reshape(rows, [leading, rest])
    # TensorFlow writes to the operand's own memory if nothing else holds it, and else to a copy.
    written = tf.raw_ops.TensorScatterUpdate(tensor=flat, indices=places, updates=new, bad_indices_policy="IGNORE")
    return tf.reshape(written, size)


@language_function
def scatter_add(x: Tensor, indices: Tensor, updates: Tensor, dim: DimensionLike) -> Tensor:
    """x plus updates at their indices along a dimension. An index outside adds nothing.

    Args:
      x: [.., dim, ..], numbers.
      indices: int32 or int64. A dimension that x also has is the same index in both.
      updates: in the dtype of x, over the dimensions of `indices` and those of x without `dim`, in any order.
      dim: a dimension of x, and not of `indices`.

    Raises:
      ShapeError: x lacks the dimension, or `updates` has other dimensions.
      DtypeError: the indices are not int32 or int64, the dtypes of x and `updates` differ, or they are bool.

    Examples:
      >>> counts, ids = mtf.zeros(mesh, "vocab:4", tf.int32), mtf.constant(mesh, [1, 1, 3], "length:3", tf.int32)
      >>> value(mtf.scatter_add(counts, ids, mtf.ones_like(ids), "vocab"))
      array([0, 2, 0, 1], dtype=int32)
    """
    own = _checked(x, indices, updates, dim)
    if x.dtype == tf.bool:
        raise DtypeError("truth values cannot be added; use mtf.scatter_update, or convert with mtf.cast")
    return add(x, sums_by_index(updates, indices, own, x.shape))


@language_function
def scatter_update(
    x: Tensor, indices: Tensor, updates: Tensor, dim: DimensionLike, *, are_distinct: bool = False
) -> Tensor:
    """x with its elements at indices along a dimension replaced by updates. An index outside does nothing.

    If several updates have the same place, the last one counts, in row-major order of the indices. Gradients flow to x
    where it was kept, and to the updates that counted.

    Args:
      x: [.., dim, ..], of any dtype.
      indices: int32 or int64. A dimension that x also has is the same index in both.
      updates: in the dtype of x, over the dimensions of `indices` and those of x without `dim`, in any order.
      dim: a dimension of x, and not of `indices`.
      are_distinct: whether indices inside never repeat, so that the last one need not be found. If one does repeat,
        any of its updates may count.

    Raises:
      ShapeError: x lacks the dimension, or `updates` has other dimensions.
      DtypeError: the indices are not int32 or int64, or the dtypes of x and `updates` differ.

    Examples:
      >>> numbers, places = mtf.range(mesh, ("n", 4)), mtf.constant(mesh, [3, 0], "i:2", tf.int32)
      >>> value(mtf.scatter_update(numbers, places, mtf.constant(mesh, [30, 10], "i:2", tf.int32), "n"))
      array([10,  1,  2, 30], dtype=int32)
    """
    own = _checked(x, indices, updates, dim)
    if all(x.shape.has(d) for d in indices.shape):
        return ReplacedElementOperation(x, indices, updates, own).outputs[0]
    indices, updates, numbers = _with_one_free_dimension(indices, updates, x.shape)
    before, rows = x.shape.dims[: x.shape.axis(own)], Shape([numbers if d == own else d for d in x.shape])
    is_by_rows = all(d in before for d in indices.shape.dims[:-1])
    if are_distinct and is_by_rows:
        return ReplacedRowsOperation(x, indices, transpose(updates, rows), own).outputs[0]
    # Several updates may have one place. Which one is last must not depend on the layout, so it is found first.
    last = LastIndexOperation(indices, own).outputs[0]
    if numbers.size <= own.size and is_by_rows:
        counts = equal(gather(last, indices, own, output_shape=indices.shape), range_along(x.mesh, numbers))
        distinct = where(counts, indices, -1, output_shape=indices.shape)
        return ReplacedRowsOperation(x, distinct, transpose(updates, rows), own).outputs[0]
    placed = gather(updates, last, numbers)
    return where(greater_equal(last, 0), placed, x, output_shape=x.shape)


def _checked(x: Tensor, indices: Tensor, updates: Tensor, dim: DimensionLike) -> Dimension:
    own = reduced_dimension(check_tensor(x), dim)
    check_indices(check_tensor(indices, "index"), own)
    same_dtype([x, check_tensor(updates, "update")])
    union([x.shape, indices.shape])
    wanted = LookupShapes.of(x.shape, indices.shape, own).rows
    if set(wanted.dims) != set(updates.shape.dims):
        raise ShapeError(f"updates [{updates.shape}] must have the dimensions [{wanted}], in any order")
    return own


def _with_one_free_dimension(indices: Tensor, updates: Tensor, x: Shape) -> tuple[Tensor, Tensor, Dimension]:
    """Indices [batch, numbers] and updates [rest, numbers], with the dimensions that x lacks as one."""
    free = [d for d in indices.shape if not x.has(d)]
    batch = [d for d in indices.shape if x.has(d)]
    rest = [d for d in updates.shape if d not in free]
    if len(free) == 1:
        return transpose(indices, [*batch, *free]), updates, free[0]
    one = Dimension(unused_name("numbers", x, indices.shape), math.prod(d.size for d in free))
    return (
        reshape(transpose(indices, [*batch, *free]), [*batch, one]),
        reshape(transpose(updates, [*rest, *free]), [*rest, one]),
        one,
    )
