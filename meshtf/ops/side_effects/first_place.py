"""Finds the first element of a tensor that fails a check, and its place in the whole tensor."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import TensorLayout
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.open_check import place_spec
from meshtf.planning.plan import NOWHERE, Core, Finding, Value
from meshtf.planning.planner import Planner

IsRefused: TypeAlias = Callable[..., tf.Tensor]
"""A function `is_refused(*slices)`: whether each checked element fails the check."""

_INT32S = 2**32


@dataclasses.dataclass(frozen=True)
class Places:
    """The places of a tensor's elements.

    A core's places are counted in the whole tensor, and a micro-batch's places in the whole batch.

    Attributes:
      shape: the tensor's shape; inside a micro-batch, the shape there.
      layout: the layout in which it is checked.
      slice_shape: the shape of one core's part.
      cuts: the cuts into micro-batches, innermost first, with the number of this one.
    """

    shape: Shape
    layout: TensorLayout
    slice_shape: tuple[int, ...]
    cuts: tuple[tuple[MicrobatchCut, Value], ...]

    @classmethod
    def of(cls, shape: Shape, layout: TensorLayout, planner: Planner) -> Places:
        """The places of the elements that the operation being lowered checks."""
        return cls(shape, layout, layout.slice_shape(shape, planner.mesh_shape), planner.loops.microbatches)

    @property
    def whole(self) -> Shape:
        """The tensor's shape in the whole batch."""
        sizes = {d.name: d.size for d in self.shape}
        for cut, dim in self._cut_dims:
            sizes[dim.name] *= cut.count
        return Shape([Dimension(name, size) for name, size in sizes.items()])

    def first(self, core: Core, is_refused: tf.Tensor, numbers: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """The first refused element's position in the slice and in the whole (NOWHERE if there is none), int64.

        `numbers` are the numbers of the micro-batches.
        """
        flat = tf.reshape(is_refused, [-1])
        position = tf.argmax(tf.cast(flat, tf.uint8), output_type=tf.int64)
        # The loop starts at the last dimension. Positions in the slice become positions in the whole batch, row-major.
        rest, place, stride = position, tf.constant(0, tf.int64), 1
        for dim, axes, size in reversed(list(zip(self.shape, self.layout.axes, self.slice_shape, strict=True))):
            own = rest % size + (tf.cast(core.coordinate(axes), tf.int64) * size if axes else 0)
            place += self._in_batch(dim, own, numbers) * stride
            rest, stride = rest // size, stride * self.whole.get_dim_by_name(dim.name).size
        return position, tf.where(tf.reduce_any(flat), place, NOWHERE)

    def described(self, place: int) -> str:
        """Text such as "batch 3, length 5"; empty for a scalar."""
        words = []
        for dim in reversed(self.whole.dims):
            place, own = divmod(place, dim.size)
            words.insert(0, f"{dim.name} {own}")
        return ", ".join(words)

    @property
    def _cut_dims(self) -> list[tuple[MicrobatchCut, Dimension]]:
        found = [(cut, cut.dimension(self.shape)) for cut, _ in self.cuts]
        return [(cut, dim) for cut, dim in found if dim is not None]

    def _in_batch(self, dim: Dimension, own: tf.Tensor, numbers: Sequence[tf.Tensor]) -> tf.Tensor:
        """The place in the whole batch of a position along a micro-batch's dimension."""
        for (cut, _), number in zip(self.cuts, numbers, strict=True):
            if cut.dimension(self.shape) == dim:
                together = cut.neighbours_along(dim)
                own = (own // together * cut.count + tf.cast(number, tf.int64)) * together + own % together
        return own


def first_place(
    planner: Planner, places: Places, values: Sequence[Value], is_refused: IsRefused, *, tells_first: bool = False
) -> Finding | None:
    """Lets every core find the first element that fails the check; None if the plan does not report places.

    Args:
      planner: the planner of the operation that checks.
      places: the places of the elements that are checked.
      values: the values that are read.
      is_refused: says which elements of their slices fail the check.
      tells_first: whether the element is reported with its place. The first value must then hold integers.
    """
    if not planner.checks.finds_failures or not math.prod(places.slice_shape):
        return None
    numbers = [number for _, number in places.cuts]
    tells_first = tells_first and places.whole.size < _INT32S // 2

    def emit(core: Core, *given: tf.Tensor) -> tf.Tensor:
        slices, own = given[: len(values)], given[len(values) :]
        position, place = places.first(core, is_refused(*slices), own)
        if tells_first:
            found = _as_int32(tf.gather(tf.reshape(slices[0], [-1]), position))
            # One int64 carries both: the place in its upper half, the element in its lower half.
            beside = tf.cast(tf.bitcast(found, tf.uint32), tf.int64)
            place = tf.where(tf.equal(place, NOWHERE), place, place * _INT32S + beside)
        return tf.reshape(place, [1])

    axes = tuple(d.name for d in planner.mesh_shape if d.name in places.layout.used)
    (value,) = planner.compute("find", emit, [*values, *numbers], [place_spec(axes, planner.mesh_shape)])
    return Finding(value, functools.partial(_with_element if tells_first else _alone, places))


def _alone(places: Places, place: int) -> str:
    return f"the first at {places.described(place)}"


def _with_element(places: Places, packed: int) -> str:
    place, beside = divmod(packed, _INT32S)
    element = beside - _INT32S if beside >= _INT32S // 2 else beside
    beyond = " or beyond" if element in (tf.int32.min, tf.int32.max) else ""
    where = places.described(place)
    return f"{element}{beyond}" + (f" at {where}" if where else "")


def _as_int32(x: tf.Tensor) -> tf.Tensor:
    """x as int32, or the nearest int32."""
    return tf.cast(
        tf.clip_by_value(x, tf.constant(tf.int32.min, x.dtype), tf.constant(tf.int32.max, x.dtype)), tf.int32
    )
