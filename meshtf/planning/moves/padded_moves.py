"""Moves values into, between and out of layouts with padded slices. These move as slices of the padded tensor (see
`padding`).

On rows:4, x [batch:6/rows] has slices of 2, as if it had 8 elements. An allgather of the slices gives all 8, and the
first 6 are x (`_cropped`). In the other direction, each core cuts its 2 out of the 6. Core 3 is beyond the end, and
holds zeros (`_padded_slice`). Between layouts that pad to different sizes, the move first makes the dimension whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import TensorLayout, axes_size
from meshtf.planning.layouts.padding import ZEROS, Fill, Filling, padded_shape, uneven_dims, whole_in
from meshtf.planning.local_work.sliced import sliced
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.moves.reshard import LocalSlice, Step, cheapest_route
from meshtf.planning.plan import Core, Cut, Value

if TYPE_CHECKING:
    from meshtf.planning.moves.moved_values import MovedValues


def moved_with_padding(moves: MovedValues, value: Value, layout: TensorLayout) -> Value:
    """The value in another layout with its sums done, where one of the two layouts does not divide its shape."""
    # Slices of a tensor padded to 8 are not slices of a tensor padded to 9, so such a dimension is first made whole.
    if unlike := _unlike_dims(value, layout, moves.mesh_shape):
        return moves.reshard(moves.reshard(value, whole_in(layout, unlike)), layout)
    shape = _common_shape(value, layout, moves.mesh_shape)
    size, mesh_shape = value.dtype.size, moves.mesh_shape
    route = cheapest_route(value.layout, value.pending, layout, shape, size, mesh_shape)
    if route.steps and all(isinstance(step, LocalSlice) for step in route.steps):
        return moves.once(value, layout, lambda: _padded_slice(moves, value, shape, layout, route.steps))
    moved = moves.take_route(_padded(moves, value, shape), layout)
    return _cropped(moves, moved, value.shape)


def without_padding(moves: MovedValues, value: Value) -> Value:
    """The value whole along the dimensions that its layout does not divide. Sums stay pending."""
    dims, shape = uneven_dims(value.layout, value.shape, moves.mesh_shape), value.shape
    value = relabelled(moves, value, padded_shape(shape, moves.mesh_shape, value.layout))
    for dim in dims:
        value = moves.once(value, ("whole", dim), functools.partial(moves.all_gather, value, dim))
    return _cropped(moves, value, shape)


def filled(moves: MovedValues, value: Value, fill: Fill) -> Value:
    """The value with its padding filled, beyond the ends of dimensions that its layout does not divide."""
    for dim in uneven_dims(value.layout, value.shape, moves.mesh_shape):
        own = value.shape.dims[dim]
        if fill.along is None or own.name in fill.along:
            filling = Filling(Fill(fill.number), dim, value.layout.axes[dim], value.slice_shape[dim], own.size)
            value = _filled_along(moves, value, filling)
    return value


def _unlike_dims(value: Value, layout: TensorLayout, mesh_shape: Shape) -> list[int]:
    """The dimensions that both layouts split, but with different padding."""
    sizes = zip(_padded_sizes(value.shape, value.layout, mesh_shape), _padded_sizes(value.shape, layout, mesh_shape),
                strict=True)  # fmt: skip
    return [i for i, (a, b) in enumerate(sizes) if a != b and value.layout.axes[i] and layout.axes[i]]


def _common_shape(value: Value, layout: TensorLayout, mesh_shape: Shape) -> Shape:
    """The shape of the padded tensor that both layouts divide."""
    before, after = (_padded_sizes(value.shape, own, mesh_shape) for own in (value.layout, layout))
    return Shape([Dimension(d.name, max(a, b)) for d, a, b in zip(value.shape, before, after, strict=True)])


def _padded_sizes(shape: Shape, layout: TensorLayout, mesh_shape: Shape) -> list[int]:
    return [n * parts for n, parts in zip(layout.slice_shape(shape, mesh_shape), layout.parts(mesh_shape), strict=True)]


def _padded(moves: MovedValues, value: Value, shape: Shape) -> Value:
    """The value of the padded tensor, which has the same slices."""
    sizes = value.layout.slice_shape(shape, moves.mesh_shape)
    ends = [(0, new - old) for new, old in zip(sizes, value.slice_shape, strict=True)]
    if not any(end for _, end in ends):
        return relabelled(moves, value, shape)

    def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
        return tf.pad(x, np.array(ends, np.int32))

    def pad() -> Value:
        spec, facts = (shape, value.dtype, value.layout), WorkFacts(only_moves=True)
        return moves.record.compute("pad", emit, [value], [spec], pending=value.pending, facts=facts)[0]

    return moves.once(value, ("pad", shape), pad)


def _cropped(moves: MovedValues, value: Value, shape: Shape) -> Value:
    """The value of a padded tensor, cropped to the tensor without padding."""
    sizes = value.layout.slice_shape(shape, moves.mesh_shape)
    if sizes == value.slice_shape:
        return relabelled(moves, value, shape)

    def crop() -> Value:
        spec, begin, facts = (shape, value.dtype, value.layout), [0] * len(sizes), WorkFacts(only_moves=True)
        return moves.record.compute(
            "crop", lambda core, x: sliced(x, begin, sizes), [value], [spec], pending=value.pending, facts=facts
        )[0]

    return moves.once(value, ("crop", shape), crop)


def _padded_slice(moves: MovedValues, value: Value, shape: Shape, layout: TensorLayout, steps: Sequence[Step]) -> Value:
    """Cuts each core's slice out of the part of a value that it holds, with zeros beyond the value's end."""
    size, sizes = layout.slice_shape(shape, moves.mesh_shape), value.layout.slice_shape(shape, moves.mesh_shape)
    cuts: list[Cut] = []
    for step in steps:
        assert isinstance(step, LocalSlice)
        parts = axes_size(step.axes, moves.mesh_shape)
        sizes = tuple(n // parts if i == step.dim else n for i, n in enumerate(sizes))
        cuts.append((step.dim, step.axes, sizes[step.dim]))
    last = [n - own for n, own in zip(value.slice_shape, size, strict=True)]
    ends = [(0, n if d in uneven_dims(layout, value.shape, moves.mesh_shape) else 0) for d, n in enumerate(size)]

    def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
        begin = core.begin(len(size), tuple(cuts))
        # Near the end, the slice is cut at the last place where it fits, and then shifted into the zeros after the end.
        inside = tf.minimum(begin, np.array(last, np.int32))
        return sliced(
            tf.pad(sliced(x, inside, size), np.array(ends, np.int32)),
            tf.minimum(begin - inside, np.array(size, np.int32)),
            size,
        )

    spec, facts = (value.shape, value.dtype, layout), WorkFacts(only_moves=True, is_trivial=True, takes_own_slice=True)
    return moves.record.compute("slice", emit, [value], [spec], pending=value.pending, facts=facts)[0]


def relabelled(moves: MovedValues, value: Value, shape: Shape) -> Value:
    """The same slices as a value of a tensor with more padding, or with less."""
    if shape == value.shape:
        return value

    def view() -> Value:
        spec, facts = (shape, value.dtype, value.layout), WorkFacts(is_view=True)
        return moves.record.compute(
            "view", lambda core, x: tf.identity(x), [value], [spec], pending=value.pending, facts=facts
        )[0]

    return moves.once(value, ("view", shape), view)


def _filled_along(moves: MovedValues, value: Value, filling: Filling) -> Value:
    def make() -> Value:
        spec, facts = (value.shape, value.dtype, value.layout), WorkFacts(only_moves=filling.fill == ZEROS)
        flops = math.prod(value.slice_shape)
        return moves.record.compute(
            "padding", filling, [value], [spec], pending=value.pending, flops=flops, facts=facts
        )[0]

    return moves.once(value, filling, make)
