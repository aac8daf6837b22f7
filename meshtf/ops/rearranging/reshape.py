"""Reshapes and renames: the same elements in the same order, under other dimensions."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import overload

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike, Shape, ShapeLike, names_of, shape_of
from meshtf.errors import ShapeError, counted
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import padded_shape, uneven_dims, whole_in
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.moves.padded_moves import relabelled, without_padding
from meshtf.planning.moves.refinement import Refinement, coarser, factor_shape, over_dimensions, refine
from meshtf.planning.moves.reshard import cheapest_route
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class ReshapeOperation(Operation):
    """The elements in row-major order under other dimensions. Only the elements that must change cores are sent."""

    passes_pending_sums = True
    takes_any_layout = True
    mapped = "by name"

    def __init__(self, x: Tensor, new_shape: Shape, name: str = "reshape") -> None:
        super().__init__([x], [(new_shape, x.dtype)], name=name)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [reshape(check_tensor(grad_ys[0]), self.inputs[0].shape)]

    def gathers_because(self, layouts: LayoutTable) -> str:
        (x,), (y,) = self.inputs, self.outputs
        if not x.size or refine(x.shape, layouts[x], y.shape, layouts[y], layouts.mesh_shape) is not None:
            return ""
        return f"slices of [{layouts[x].to_string(x.shape)}] are no slices of [{layouts[y].to_string(y.shape)}]"

    def needs_whole(self, name: str) -> bool:
        source, target = self.inputs[0].shape, self.outputs[0].shape
        return all(name not in (source[i].name, target[j].name) for i, j in _kept_dims(source, target))

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        (held,) = planner.read_operands_as_they_are(self, fill=None)
        held, layout = _split_alike(planner, held, output.shape, planner.layouts[output])
        # Dimensions that the reshape keeps may be padded. Then the padded tensor is reshaped.
        before, after = (padded_shape(s, planner.mesh_shape, own) for s, own in ((held.shape, held.layout),
                                                                                 (output.shape, layout)))  # fmt: skip
        value = relabelled(planner.moves, held, before)
        kept = _local(planner, value, after) if value.pending else None
        if kept is not None:
            result = _reshaped(planner, value, after, kept)
        else:
            result = _resharded(planner, planner.reduce_pending(value), after, layout)
        planner.write(output, relabelled(planner.moves, result, output.shape))


def _kept_dims(source: Shape, target: Shape) -> list[tuple[int, int]]:
    """Pairs of dimensions of the source and the target that are the same one, perhaps under other names.

    A pair is left out if another dimension has one of its names.
    """
    starts = [list(itertools.accumulate(s.to_integer_list, operator.mul, initial=1)) for s in (source, target)]
    kept = [
        (i, j)
        for i, dim in enumerate(source)
        for j, other in enumerate(target)
        if dim.size == other.size > 1 and starts[0][i] == starts[1][j]
    ]
    while True:
        names = [{source[i].name for i, _ in kept}, {target[j].name for _, j in kept}]
        elsewhere = (set(source.dimension_names) - names[0]) | (set(target.dimension_names) - names[1])
        left = [(i, j) for i, j in kept if not {source[i].name, target[j].name} & elsewhere]
        if left == kept:
            return kept
        kept = left


def _split_alike(planner: Planner, value: Value, shape: Shape, layout: TensorLayout) -> tuple[Value, TensorLayout]:
    """The value, and a layout of the target in which kept dimensions that do not divide are split as in the value."""
    kept, axes = _kept_dims(value.shape, shape), list(layout.axes)
    uneven = uneven_dims(value.layout, value.shape, planner.mesh_shape)
    for i, j in kept:
        if i in uneven or j in uneven_dims(layout, shape, planner.mesh_shape):
            axes[j] = value.layout.axes[i]
    used = [a for own in axes for a in own]
    if len(used) == len(set(used)):
        return value, TensorLayout(tuple(axes))
    value = without_padding(planner.moves, value)
    return value, whole_in(layout, [j for _, j in kept])


def _resharded(planner: Planner, value: Value, shape: Shape, layout: TensorLayout) -> Value:
    if not shape.size:
        return _reshaped(planner, value, shape, layout)  # every slice is empty
    refinement = refine(value.shape, value.layout, shape, layout, planner.mesh_shape)
    if refinement is None:
        source, target = _cheapest_pair(planner, value, shape, layout)
        value = planner.reshard(value, source)
        refinement = refine(value.shape, source, shape, target, planner.mesh_shape)
        assert refinement is not None
        layout = target
    # Both layouts have the same slices, so nothing is sent.
    if refinement.source == refinement.target:
        return _reshaped(planner, value, shape, layout)
    # Merged factors move at once. But a part of a merged factor can no longer move by itself.
    candidates = (refinement.merged(planner.mesh_shape), refinement)
    refinement = min(candidates, key=lambda found: _bytes(planner, value, value.layout, found))
    factors = factor_shape(value.shape, refinement.sizes)
    value = _reshaped(planner, value, factors, refinement.source)
    return _reshaped(planner, planner.reshard(value, refinement.target), shape, layout)


def _cheapest_pair(
    planner: Planner, value: Value, shape: Shape, layout: TensorLayout
) -> tuple[TensorLayout, TensorLayout]:
    """The layouts to gather to before the reshape, and to slice from after it, if the two given have no common
    refinement.
    """
    pairs = []
    for source in coarser(value.layout):
        for target in coarser(layout):
            refinement = refine(value.shape, source, shape, target, planner.mesh_shape)
            if refinement is not None:
                pairs.append((_bytes(planner, value, source, refinement), len(pairs), source, target))
    _, _, source, target = min(pairs, key=lambda pair: pair[:2])
    return source, target


def _bytes(planner: Planner, value: Value, source: TensorLayout, refinement: Refinement) -> int:
    size, mesh_shape = value.dtype.size, planner.mesh_shape
    before = cheapest_route(value.layout, (), source, value.shape, size, mesh_shape)
    factors = factor_shape(value.shape, refinement.sizes)
    between = cheapest_route(refinement.source, (), refinement.target, factors, size, mesh_shape)
    return before.bytes_sent + between.bytes_sent


def _local(planner: Planner, value: Value, shape: Shape) -> TensorLayout | None:
    """The layout over `shape` that results if only the slices are reshaped, or None."""
    unsplit = TensorLayout(((),) * shape.ndims)
    refinement = refine(value.shape, value.layout, shape, unsplit, planner.mesh_shape)
    if refinement is None:
        return None
    return over_dimensions(shape, refinement.sizes, refinement.source.axes, planner.mesh_shape)


def _reshaped(planner: Planner, value: Value, shape: Shape, layout: TensorLayout) -> Value:
    """The value with its slices reshaped where they are."""
    size = layout.slice_shape(shape, planner.mesh_shape)

    def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
        return core.reshaped(x, size)

    spec = (shape, value.dtype, layout)
    return planner.compute("reshape", emit, [value], [spec], pending=value.pending, facts=WorkFacts(is_view=True))[0]


@language_function
def reshape(x: Tensor, new_shape: ShapeLike, name: str = "reshape") -> Tensor:
    """x over other dimensions of the same total size, in row-major order.

    A name without a size keeps the size that it has in x. See also `mtf.rearrange`.

    Raises:
      ShapeError: the sizes do not multiply to the same number, or a dimension that x lacks has no size.

    Examples:
      >>> mtf.reshape(x, "batch heads:2 d_kv:4")
      reshape [batch:4 heads:2 d_kv:4] float32
      >>> mtf.reshape(x, "elements:32")
      reshape_1 [elements:32] float32
    """
    shape = shape_of(new_shape, check_tensor(x).shape)
    if shape.size != x.size:
        raise ShapeError(
            f"[{x.shape}] has {counted(x.size, 'element')} and [{shape}] has {shape.size}; a reshape keeps them all"
        )
    return x if shape == x.shape else ReshapeOperation(x, shape, name).outputs[0]


@language_function
def rename_dimension(x: Tensor, old_name: DimensionLike, new_name: DimensionLike) -> Tensor:
    """x with one dimension under another name, which may have another layout rule.

    Raises:
      ShapeError: x has no such dimension, or has the new name already.

    Examples:
      >>> mtf.rename_dimension(x, "batch", "memory")
      rename_dimension [memory:4 hidden:8] float32
    """
    old, (new,) = check_tensor(x).shape[x.shape.axis(old_name)], names_of([new_name])
    if x.shape.has(new) and new != old.name:
        raise ShapeError(f'[{x.shape}] has a dimension "{new}" already; choose another name')
    return reshape(x, x.shape.rename_dimension(old.name, new), name="rename_dimension")


@overload
def replace_dimensions(tensor_or_shape: Tensor, old_dim_or_dims: ShapeLike, new_dim_or_dims: ShapeLike) -> Tensor: ...
@overload
def replace_dimensions(tensor_or_shape: Shape, old_dim_or_dims: ShapeLike, new_dim_or_dims: ShapeLike) -> Shape: ...
@language_function
def replace_dimensions(
    tensor_or_shape: Tensor | Shape,
    old_dim_or_dims: ShapeLike,
    new_dim_or_dims: ShapeLike,
) -> Tensor | Shape:
    """Replaces consecutive dimensions of a tensor (by a reshape) or of a shape.

    Raises:
      ShapeError: the old dimensions are missing or not consecutive, or the sizes do not multiply to the same number.

    Examples:
      >>> mtf.replace_dimensions(x, "hidden", "heads:2 d_kv:4")
      reshape [batch:4 heads:2 d_kv:4] float32
      >>> mtf.replace_dimensions(x.shape, x.shape.dims, mtf.Dimension("elements", 32))
      Shape[elements:32]
    """
    shape = tensor_or_shape if isinstance(tensor_or_shape, Shape) else check_tensor(tensor_or_shape).shape
    old, new = shape.only(old_dim_or_dims), shape_of(new_dim_or_dims, shape)
    positions = [shape.axis(d) for d in old]
    if not positions or positions != list(range(positions[0], positions[0] + len(positions))):
        raise ShapeError(f"[{old}] are not consecutive dimensions of [{shape}]; transpose first")
    if old.size != new.size:
        raise ShapeError(f"[{old}] has {counted(old.size, 'element')} and [{new}] has {new.size}")
    replaced = Shape([*shape.dims[: positions[0]], *new, *shape.dims[positions[-1] + 1 :]])
    return reshape(tensor_or_shape, replaced) if isinstance(tensor_or_shape, Tensor) else replaced
