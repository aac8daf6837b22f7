"""Changes elements of a tensor at some places: `x.at["n", i].set(v)` and `.add(v)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Dimension, unused_name
from meshtf.errors import ShapeError, nearest
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.algebra.transpose_and_broadcast import broadcast
from meshtf.ops.indexing.dynamic_slice import dynamic_update_slice
from meshtf.ops.indexing.scatter import scatter_add, scatter_update
from meshtf.ops.inputs.constants import constant, zeros_like
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.inputs.scalars import is_scalar, scalar_constant
from meshtf.ops.named_indices.picks import Pick, picked_shape
from meshtf.ops.named_indices.take import taken
from meshtf.ops.rearranging.concat_and_slice import pad
from meshtf.ops.rearranging.reshape import rename_dimension
from meshtf.ops.windows.shift import reverse


def set_at(x: Tensor, chosen: Sequence[Pick], value: Any) -> Tensor:
    """x with the value at the places that a plan chooses.

    Raises:
      ShapeError: the value has a dimension that the places lack, or two index tensors share one that x lacks.
    """
    # Each dimension is written in turn: all rows that an index tensor names are read, changed and written back. If
    # there are several copies of a row, the last one stays. A second index tensor that shares a dimension with the
    # first would change another place in each copy, and all changes but the last would be lost.
    for dim in picked_shape(x.shape, chosen):
        sharing = [pick.dim.name for pick in chosen if dim in pick.own_dims and not x.shape.has(dim)]
        if len(sharing) > 1:
            raise ShapeError(
                f'the indices along "{sharing[0]}" and "{sharing[1]}" share dimension "{dim.name}", which '
                f"[{x.shape}] lacks; make one dimension of the two with x.flatten, or use .add"
            )
    return _set(x, list(chosen), _value(x, chosen, value))


def add_at(x: Tensor, chosen: Sequence[Pick], value: Any) -> Tensor:
    """x plus the value at the places that a plan chooses.

    Raises:
      ShapeError: the value has a dimension that the places lack.
    """
    return _add(x, list(chosen), _value(x, chosen, value))


def _value(x: Tensor, chosen: Sequence[Pick], value: Any) -> Tensor:
    """The value as a tensor over the dimensions of the places."""
    shape = picked_shape(x.shape, chosen)
    if is_scalar(value):
        return constant(x.mesh, scalar_constant(value, x.dtype), shape, x.dtype)
    same_dtype([x, check_tensor(value, "value", beside=x)])
    for dim in value.shape:
        if not shape.has(dim.name):
            known = nearest(dim.name, shape.dimension_names)
            raise ShapeError(f'the places [{shape}] lack dimension "{dim.name}" of the value [{value.shape}]{known}')
        shape.axis(dim)
    return value if value.shape.ndims == shape.ndims else broadcast(value, shape)


def _set(x: Tensor, chosen: list[Pick], value: Tensor) -> Tensor:
    if not chosen:
        return value
    pick, *rest = chosen
    if rest:
        value = _set(taken(x, [pick]), rest, value)
    return _written(x, pick, value, scatter_update, _set_segment)


def _add(x: Tensor, chosen: list[Pick], value: Tensor) -> Tensor:
    if not chosen:
        return add(x, value)
    pick, *rest = chosen
    if rest:
        value = _add(zeros_like(taken(x, [pick])), rest, value)
    return _written(x, pick, value, scatter_add, _add_segment)


def _written(
    x: Tensor,
    pick: Pick,
    value: Tensor,
    scatter: Callable[[Tensor, Tensor, Tensor, Dimension], Tensor],
    at_segment: Callable[[Tensor, Tensor, int, Dimension], Tensor],
) -> Tensor:
    dim, index = pick.dim, pick.index
    if isinstance(index, Tensor):
        return scatter(x, index, value, dim)
    if isinstance(index, int):
        return scatter(x, constant(x.mesh, index, dtype=tf.int32), value, dim)
    if not index:
        return x
    if index.step < 0:
        index, value = index[::-1], reverse(value, dim.name)
    if len(index) == 1 or index.step == 1:
        return at_segment(x, value, index.start, dim)
    number = Dimension(unused_name(f"{dim.name}_index", x.shape, value.shape), len(index))
    places = positions(x.mesh, number) * index.step + index.start
    return scatter(x, places, rename_dimension(value, dim.name, number.name), dim)


def _set_segment(x: Tensor, value: Tensor, begin: int, dim: Dimension) -> Tensor:
    return dynamic_update_slice(x, value, constant(x.mesh, begin, dtype=tf.int32), dim)


def _add_segment(x: Tensor, value: Tensor, begin: int, dim: Dimension) -> Tensor:
    size = value.shape.get_dim_by_name(dim.name).size
    return add(x, pad(value, [begin, dim.size - begin - size], dim.name))
