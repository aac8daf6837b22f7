"""Reshapes and renames: the same elements in the same order under other dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast, overload

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, ShapeLike
from meshtf.errors import ShapeError
from meshtf.graph import Operation, Tensor, check_tensor, shape_of
from meshtf.layout import TensorLayout
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.refinement import Refinement, coarser, factor_shape, over_dimensions, refine
from meshtf.planning.reshard import cheapest_route
from meshtf.planning.work_facts import WorkFacts

Dims: TypeAlias = "DimensionLike | Sequence[DimensionLike]"


class ReshapeOperation(Operation):
    """Row-major order is kept. What moves between cores is what the two layouts call for, and no more."""

    passes_pending_sums = True
    takes_any_layout = True

    def __init__(self, x: Tensor, new_shape: Shape, name: str = "reshape") -> None:
        super().__init__([x], [(new_shape, x.dtype)], name=name)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [reshape(check_tensor(grad_ys[0]), self.inputs[0].shape)]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        (value,) = planner.read_operands_as_they_are(self)
        if value.pending:
            kept = _local(planner, value, output.shape)
            if kept is not None:
                planner.write(output, _reshaped(planner, value, output.shape, kept))
                return
            value = planner.reduce_pending(value)
        planner.write(output, _resharded(planner, value, output.shape, planner.layouts[output]))


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
    if refinement.source == refinement.target:
        return _reshaped(planner, value, shape, layout)
    candidates = (refinement.merged(planner.mesh_shape), refinement)
    refinement = min(candidates, key=lambda found: _bytes(planner, value, value.layout, found))
    factors = factor_shape(value.shape, refinement.sizes)
    value = _reshaped(planner, value, factors, refinement.source)
    return _reshaped(planner, planner.reshard(value, refinement.target), shape, layout)


def _cheapest_pair(
    planner: Planner, value: Value, shape: Shape, layout: TensorLayout
) -> tuple[TensorLayout, TensorLayout]:
    """Layouts to gather to before, and to slice from after, where the two given have no common refinement."""
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
    """The layout over `shape` that a reshape of the slices alone amounts to, or None."""
    unsplit = TensorLayout(((),) * shape.ndims)
    refinement = refine(value.shape, value.layout, shape, unsplit, planner.mesh_shape)
    if refinement is None:
        return None
    return over_dimensions(shape, refinement.sizes, refinement.source.axes, planner.mesh_shape)


def _reshaped(planner: Planner, value: Value, shape: Shape, layout: TensorLayout) -> Value:
    """The value's slices reshaped where they are."""
    size = layout.slice_shape(shape, planner.mesh_shape)
    is_same = size == value.slice_shape

    def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
        return x if is_same else tf.reshape(x, size)

    spec = (shape, value.dtype, layout)
    return planner.compute("reshape", emit, [value], [spec], pending=value.pending, facts=WorkFacts(is_view=True))[0]


@language_function
def reshape(x: Tensor, new_shape: ShapeLike, name: str = "reshape") -> Tensor:
    """x over other dimensions of the same total size, in row-major order.

    Raises:
      ShapeError: the sizes do not multiply to the same number.

    Examples:
      >>> mtf.reshape(x, "batch:4 heads:2 d_kv:4")
      reshape [batch:4 heads:2 d_kv:4] float32
      >>> mtf.reshape(x, "elements:32")
      reshape_1 [elements:32] float32
    """
    shape = shape_of(new_shape)
    if shape.size != check_tensor(x).size:
        raise ShapeError(f"[{x.shape}] has {x.size} elements and [{shape}] has {shape.size}; a reshape keeps them all")
    return x if shape == x.shape else ReshapeOperation(x, shape, name).outputs[0]


@language_function
def rename_dimension(x: Tensor, old_name: str, new_name: str) -> Tensor:
    """x with one dimension under another name (and so, perhaps, another layout).

    Raises:
      ShapeError: x has no such dimension, or has the new name already.

    Examples:
      >>> mtf.rename_dimension(x, "batch", "memory")
      rename_dimension [memory:4 hidden:8] float32
    """
    check_tensor(x).shape.axis(old_name)
    if x.shape.has(new_name) and new_name != old_name:
        raise ShapeError(f'[{x.shape}] has a dimension "{new_name}" already; choose another name')
    return reshape(x, x.shape.rename_dimension(old_name, new_name), name="rename_dimension")


@overload
def replace_dimensions(tensor_or_shape: Tensor, old_dim_or_dims: Dims, new_dim_or_dims: Dims) -> Tensor: ...
@overload
def replace_dimensions(tensor_or_shape: Shape, old_dim_or_dims: Dims, new_dim_or_dims: Dims) -> Shape: ...
@language_function
def replace_dimensions(
    tensor_or_shape: Tensor | Shape,
    old_dim_or_dims: Dims,
    new_dim_or_dims: Dims,
) -> Tensor | Shape:
    """Puts other dimensions in place of a run of consecutive ones, on a tensor (a reshape) or a shape.

    Raises:
      ShapeError: the old dimensions are not there, or not side by side, or the sizes do not multiply to the same.

    Examples:
      >>> mtf.replace_dimensions(x, mtf.Dimension("hidden", 8), [("heads", 2), ("d_kv", 4)])
      reshape [batch:4 heads:2 d_kv:4] float32
      >>> mtf.replace_dimensions(x.shape, x.shape.dims, mtf.Dimension("elements", 32))
      Shape[elements:32]
    """
    old, new = _as_shape(old_dim_or_dims), _as_shape(new_dim_or_dims)
    shape = tensor_or_shape.shape if isinstance(tensor_or_shape, Tensor) else tensor_or_shape
    positions = [shape.axis(d) for d in old]
    if not positions or positions != list(range(positions[0], positions[0] + len(positions))):
        raise ShapeError(f"[{old}] are not consecutive dimensions of [{shape}]; transpose first")
    if old.size != new.size:
        raise ShapeError(f"[{old}] has {old.size} elements and [{new}] has {new.size}")
    replaced = Shape([*shape.dims[: positions[0]], *new, *shape.dims[positions[-1] + 1 :]])
    return reshape(tensor_or_shape, replaced) if isinstance(tensor_or_shape, Tensor) else replaced


def _as_shape(dims: Dims) -> Shape:
    if isinstance(dims, Dimension) or (isinstance(dims, tuple) and len(dims) == 2 and isinstance(dims[0], str)):
        return Shape([cast("DimensionLike", dims)])
    return Shape(cast("Sequence[DimensionLike]", dims))
