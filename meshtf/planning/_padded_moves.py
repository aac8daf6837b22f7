"""Into and out of layouts with padded slices, which are moved as those of the padded tensor: see `padded_layouts`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import TensorLayout
from meshtf.planning._padded_layouts import ZeroPadding, evened, padded_shape, uneven_dims, whole_in
from meshtf.planning.plan import Value
from meshtf.planning.work_facts import WorkFacts

if TYPE_CHECKING:
    from meshtf.planning.planner import Planner


def into_padding(planner: Planner, value: Value, layout: TensorLayout, dims: list[int]) -> Value:
    """The value in a layout that does not divide these dimensions."""
    if any(value.layout.axes[i] for i in dims):
        value = planner.reshard(value, whole_in(value.layout, dims))
    shape = padded_shape(value.shape, planner.mesh_shape, layout)
    ends = [(0, new.size - old.size) for new, old in zip(shape, value.shape, strict=True)]

    def pad() -> Value:
        spec, facts = (shape, value.dtype, value.layout), WorkFacts(only_moves=True)
        return planner.compute(
            "pad", lambda core, x: tf.pad(x, ends), [value], [spec], pending=value.pending, facts=facts
        )[0]

    padded = planner.once(value, ("pad", shape), pad)
    return _relabelled(planner, planner.take_route(padded, layout), value.shape)


def out_of_padding(planner: Planner, value: Value, layout: TensorLayout) -> Value:
    """A value whose layout does not divide some dimensions, in another."""
    dims = uneven_dims(value.layout, value.shape, planner.mesh_shape)
    shape = padded_shape(value.shape, planner.mesh_shape, value.layout)
    target = evened(whole_in(layout, dims), value.shape, planner.mesh_shape)
    whole = planner.take_route(_relabelled(planner, value, shape), target)
    size = target.slice_shape(value.shape, planner.mesh_shape)

    def crop() -> Value:
        spec, begin, facts = (value.shape, value.dtype, target), [0] * len(size), WorkFacts(only_moves=True)
        return planner.compute("crop", lambda core, x: tf.slice(x, begin, size), [whole], [spec], facts=facts)[0]

    return planner.reshard(planner.once(whole, ("crop", value.shape), crop), layout)


def with_zero_padding(planner: Planner, value: Value) -> Value:
    """The value with zeros beyond the ends of dimensions that its layout does not divide."""
    for dim in uneven_dims(value.layout, value.shape, planner.mesh_shape):
        axes, size = value.layout.axes[dim], value.slice_shape[dim]
        value = _zeroed(planner, value, ZeroPadding(dim, axes, size, value.shape.dims[dim].size))
    return value


def _relabelled(planner: Planner, value: Value, shape: Shape) -> Value:
    """The same slices as those of a tensor with more padding, or less."""

    def view() -> Value:
        spec, facts = (shape, value.dtype, value.layout), WorkFacts(is_view=True)
        return planner.compute(
            "view", lambda core, x: tf.identity(x), [value], [spec], pending=value.pending, facts=facts
        )[0]

    return planner.once(value, ("view", shape), view)


def _zeroed(planner: Planner, value: Value, zeros: ZeroPadding) -> Value:
    def make() -> Value:
        spec, facts = (value.shape, value.dtype, value.layout), WorkFacts(only_moves=True)
        flops = math.prod(value.slice_shape)
        return planner.compute("zero padding", zeros, [value], [spec], flops=flops, facts=facts)[0]

    return planner.once(value, zeros, make)
