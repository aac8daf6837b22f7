"""`grouped_matmul`: products of rows in groups, where each group has its own matrix."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike, Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.layout import Axes
from meshtf.ops.algebra.elementwise_operation import conjugate
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.grouped_products._dimensions import GroupedDimensions
from meshtf.ops.grouped_products._local_work import LocalProduct, LocalShapes, LocalSum
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.local_work.processor_work import ProcessorWork
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.planner import Planner
from meshtf.planning.splits import choose_splits, layout_over, summed_axes

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64, tf.complex64, tf.complex128)


class _GroupedOperation(Operation):
    """An operation on two operands and the sizes of groups.

    A core has whole tables of rows, and the sizes of all groups. If groups are split, it works on the groups whose
    matrices it has. That leaves a pending sum: each core has its groups' rows, and zeros elsewhere.
    """

    is_product = True

    def __init__(self, inputs: Sequence[Tensor], dims: GroupedDimensions, output_shape: Shape) -> None:
        super().__init__(inputs, [(output_shape, inputs[0].dtype)], name="grouped_matmul")
        self.dims = dims

    def needs_whole(self, name: str) -> bool:
        return name in (self.dims.rows.name, self.dims.groups.name, self.dims.counted.name)

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return summed_axes(self._splits(layouts), self.outputs[0].shape)

    def lower(self, planner: Planner) -> None:
        (output,), splits, counted = self.outputs, self._splits(planner.layouts), self.dims.counted.name
        # A core needs the sizes of all groups, because they say where the rows of its own groups begin.
        own = [splits, splits, {**splits, counted: ()}]
        values = [planner.read(x, layout_over(x.shape, each)) for x, each in zip(self.inputs, own, strict=True)]
        layout = layout_over(output.shape, splits)
        sizes = layout.slice_shape(output.shape, planner.mesh_shape)
        local = dict(zip(output.shape.dimension_names, sizes, strict=True))
        for value in values[:2]:
            local |= zip(value.shape.dimension_names, value.slice_shape, strict=True)
        shapes = LocalShapes(self.dims, local, splits[self.dims.groups.name])
        product, spec = shapes.as_product, (output.shape, output.dtype, layout)
        (value,) = planner.compute(
            "grouped_matmul", self._work(shapes), values, [spec], pending=self.pending_axes(planner.layouts),
            flops=product.flops, facts=WorkFacts(products=(product,)),
        )  # fmt: skip
        planner.write(output, value)

    def _splits(self, layouts: LayoutTable) -> dict[str, Axes]:
        return choose_splits(self.inputs[:2], self.outputs[0], layouts, whole=[self.dims.rows.name])

    @abc.abstractmethod
    def _work(self, shapes: LocalShapes) -> ProcessorWork:
        """The work on a core's slices of the inputs."""


class GroupedProductOperation(_GroupedOperation):
    """Makes y from rows x, matrices w and sizes; see `grouped_matmul`."""

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x, w, sizes), dy = self.inputs, check_tensor(grad_ys[0])
        of_x = GroupedProductOperation([dy, conjugate(w), sizes], self.dims.exchanged, x.shape)
        of_w = GroupedSumOperation([conjugate(x), dy, sizes], self.dims, w.shape)
        return [of_x.outputs[0], of_w.outputs[0], None]

    def _work(self, shapes: LocalShapes) -> ProcessorWork:
        x, w, sizes = self.inputs
        return LocalProduct(shapes, x.shape, w.shape, sizes.shape, self.outputs[0].shape)


class GroupedSumOperation(_GroupedOperation):
    """Makes w from rows x, other rows y and sizes: for each group the sum over its rows of x · y."""

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x, y, sizes), dw = self.inputs, check_tensor(grad_ys[0])
        of_x = GroupedProductOperation([conjugate(y), dw, sizes], self.dims.exchanged, x.shape)
        of_y = GroupedProductOperation([conjugate(x), dw, sizes], self.dims, y.shape)
        return [of_x.outputs[0], of_y.outputs[0], None]

    def _work(self, shapes: LocalShapes) -> ProcessorWork:
        x, y, sizes = self.inputs
        return LocalSum(shapes, x.shape, y.shape, sizes.shape, self.outputs[0].shape)


@language_function
def grouped_matmul(
    x: Tensor,
    w: Tensor,
    sizes: Tensor,
    rows: DimensionLike,
    groups: DimensionLike,
    output_shape: ShapeLike | None = None,
) -> Tensor:
    """Multiplies each row by its group's matrix. The groups of rows follow one another; rows after the last give zeros.

    This is the einsum of x with `gather` of w for each row, but without the copies. Only rows that exist are computed,
    whatever the sizes are. XLA, which needs to know shapes, computes at most one more tile of rows for each group.

    Args:
      x: [.., rows, contracted..], numbers, in any order.
      w: [groups, contracted.., new..], of x's dtype. It may also have other dimensions of x, along which the matrices
        then differ.
      sizes: [.., groups], int32 or int64: how many rows each group has. Groups are cut at the end of the rows. The
        dimension may have another name than that of w, which a layout rule may split.
      rows: a dimension of x.
      groups: a dimension of w.
      output_shape: the order of the result's dimensions. By default, the new dimensions follow those that x keeps.

    Raises:
      ShapeError: a dimension is missing, has two sizes, or has no role in the product.
      DtypeError: the sizes are not int32 or int64, the dtypes of x and w differ, or they are not numbers of 2 to 16
        bytes.

    Examples:
      >>> tokens, experts = mtf.ones(mesh, "slots:5 d_model:4"), mtf.ones(mesh, "experts:2 d_model:4 d_ff:8")
      >>> sizes = mtf.constant(mesh, [3, 1], "experts:2", tf.int32)
      >>> y = mtf.grouped_matmul(tokens, experts, sizes, "slots", "experts")
      >>> y
      grouped_matmul [slots:5 d_ff:8] float32
      >>> value(mtf.reduce_max(y, reduced_dim="d_ff"))
      array([4., 4., 4., 4., 0.], dtype=float32)
    """
    dtype = same_dtype([check_tensor(x), check_tensor(w)])
    if dtype not in _DTYPES:
        raise DtypeError(f"rows and matrices must be numbers of 2 to 16 bytes, not {dtype.name}; convert with mtf.cast")
    if check_tensor(sizes).dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"sizes must be int32 or int64, not {sizes.dtype.name}; convert with mtf.cast")
    dims = GroupedDimensions.of(x.shape, w.shape, sizes.shape, reduced_dimension(x, rows), reduced_dimension(w, groups))
    kept = [d for d in x.shape if not dims.of_x.has(d.name)]
    shape = Shape([*kept, *dims.of_y])
    wanted = shape if output_shape is None else shape.only(output_shape)
    if wanted.ndims != shape.ndims:
        raise ShapeError(f"output_shape [{wanted}] must have the dimensions [{shape}], in any order")
    return GroupedProductOperation([x, w, sizes], dims, wanted).outputs[0]
