"""Moves values to other layouts, each only once.

Moves are stored by value. If one reader has gathered x [batch:8/rows], the next reader finds it whole and sends
nothing. A loop or a branch uses the moves of the block around it for a value from outside. So the value is moved once,
and not in every iteration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning import core_positions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.layouts.padding import Fill, uneven_dims
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.local_work.sliced import sliced
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.moves.padded_moves import filled, moved_with_padding
from meshtf.planning.moves.reshard import LocalSlice, Route, cheapest_route
from meshtf.planning.plan import Core, Value
from meshtf.planning.plan_record import PlanRecord


class MovedValues:
    """Moves values, by instructions that it adds to a record.

    Args:
      record: the record of the plan or the block.
      outside: the moves of the enclosing block or program; None for the program itself.
    """

    def __init__(self, record: PlanRecord, outside: MovedValues | None = None) -> None:
        self.record = record
        self._outside = outside
        self._from_outside: set[Value] = set()
        # Keyed by value, not by tensor, because several tensors may share a value, as a tensor and an override of its
        # layout do.
        self._moved: dict[tuple[Value, object], Value] = {}

    @property
    def mesh_shape(self) -> Shape:
        return self.record.mesh_shape

    def once(self, value: Value, key: object, make: Callable[[], Value]) -> Value:
        """Calls `make` for a value and a key, the first time only; later calls return the first result."""
        if (value, key) not in self._moved:
            self._moved[value, key] = make()
        return self._moved[value, key]

    # Collectives

    def collective(self, step: CollectiveStep, value: Value, layout: TensorLayout, pending: Axes = ()) -> Value:
        """Adds a collective, and returns its result in `layout`, with sums over `pending` still pending."""
        if self._is_outside(value):
            return self._done_outside(lambda outside: outside.collective(step, value, layout, pending))
        return self.record.collective(step, value, layout, pending)

    def all_reduce(self, value: Value, axes: Axes, reduction: Reduction) -> Value:
        """The values of the cores along these mesh axes, combined."""
        axes = tuple(a for a in axes if self._parts((a,)) > 1)
        if not axes:
            return value
        return self.collective(AllReduce(axes, reduction), value, value.layout, value.pending)

    def all_gather(self, value: Value, dim: int) -> Value:
        """The value with one dimension whole on every core; sums stay pending."""
        axes, own = value.layout.axes, value.layout.axes[dim]
        if self._parts(own) == 1:
            return value
        layout = TensorLayout((*axes[:dim], (), *axes[dim + 1 :]))
        return self.collective(AllGather(own, dim), value, layout, value.pending)

    def permute(self, value: Value, axes: Axes, place: Callable[[int], int]) -> Value:
        """The value with each core's slice sent to position `place(own position)` along these mesh axes. Sums stay
        pending."""
        destinations = core_positions.destinations(axes, place, self.mesh_shape)
        if destinations == tuple(range(len(destinations))):
            return value
        in_order = tuple(d.name for d in self.mesh_shape if d.name in axes)
        return self.collective(Permute(in_order, destinations), value, value.layout, value.pending)

    # Routes

    def route(self, value: Value, layout: TensorLayout) -> Route:
        """The cheapest route of a value to a layout."""
        return cheapest_route(value.layout, value.pending, layout, value.shape, value.dtype.size, self.mesh_shape)

    def reshard(self, value: Value, layout: TensorLayout) -> Value:
        """The value in another layout with its pending sums done, by the cheapest route."""
        if value.layout == layout and not value.pending:
            return value
        if self.is_even(value) and not uneven_dims(layout, value.shape, self.mesh_shape):
            return self.take_route(value, layout)
        if self._is_outside(value):
            return self._done_outside(lambda outside: outside.reshard(value, layout))
        return moved_with_padding(self, value, layout)

    def take_route(self, value: Value, layout: TensorLayout) -> Value:
        """Takes the cheapest steps to a layout. Steps already taken from the same value are reused."""
        route = self.route(value, layout)
        taken = zip(route.steps, route.states, strict=True)
        for is_slice, group in itertools.groupby(
            taken, key=lambda step_and_state: isinstance(step_and_state[0], LocalSlice)
        ):
            if is_slice:
                steps, states = zip(*group, strict=True)
                if (value, steps) not in self._moved:
                    self._moved[value, steps] = self._local_slice(value, TensorLayout(states[-1].axes), steps)
                value = self._moved[value, steps]
                continue
            for step, state in group:
                assert not isinstance(step, LocalSlice)
                if (value, step) not in self._moved:
                    layout = TensorLayout(state.axes)
                    self._moved[value, step] = self.collective(step, value, layout, state.pending)
                value = self._moved[value, step]
        return value

    def _local_slice(self, value: Value, layout: TensorLayout, steps: Sequence[LocalSlice]) -> Value:
        if self._is_outside(value):
            return self._done_outside(lambda outside: outside._local_slice(value, layout, steps))
        size, sizes = layout.slice_shape(value.shape, self.mesh_shape), value.slice_shape
        cuts = []
        for step in steps:
            sizes = tuple(n // self._parts(step.axes) if i == step.dim else n for i, n in enumerate(sizes))
            cuts.append((step.dim, step.axes, sizes[step.dim]))

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return sliced(x, core.begin(len(size), tuple(cuts)), size)

        spec, facts = (
            (value.shape, value.dtype, layout),
            WorkFacts(only_moves=True, is_trivial=True, takes_own_slice=True),
        )
        return self.record.compute("slice", emit, [value], [spec], pending=value.pending, facts=facts)[0]

    # Padding and terms of sums

    def is_even(self, value: Value) -> bool:
        """Whether no slice of the value is padded."""
        return not uneven_dims(value.layout, value.shape, self.mesh_shape)

    def filled(self, value: Value, fill: Fill | None) -> Value:
        """The value with its padding filled as `fill` says; None: as it is."""
        if fill is None or self.is_even(value):
            return value
        if self._is_outside(value):
            return self._done_outside(lambda outside: outside.filled(value, fill))
        return filled(self, value, fill)

    def made_pending(self, value: Value, axes: Axes) -> Value:
        """The value as a term of a sum over `axes`: itself on the first core along the missing axes, else zero."""
        missing = tuple(a for a in axes if a not in value.pending)
        if not missing:
            return value

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.equal(core.coordinate(missing), 0), x, tf.zeros([], x.dtype))

        spec, flops = (value.shape, value.dtype, value.layout), math.prod(value.slice_shape)
        return self.record.compute("first term", emit, [value], [spec], pending=axes, flops=flops)[0]

    # Values from outside

    def take_from_outside(self, value: Value) -> None:
        """Records that this block uses a value from outside."""
        self._from_outside.add(value)

    def made_outside(self, make: Callable[[], Value]) -> Value:
        """Calls `make`, which adds instructions around this block, on behalf of the operation being lowered here."""
        assert self._outside is not None
        with self._outside.record.on_behalf_of(self.record.operation):
            value = make()
        self.take_from_outside(value)
        return value

    def _done_outside(self, move: Callable[[MovedValues], Value]) -> Value:
        outside = self._outside
        assert outside is not None
        return self.made_outside(lambda: move(outside))

    def _is_outside(self, value: Value) -> bool:
        return value in self._from_outside

    def _parts(self, axes: Axes) -> int:
        return axes_size(axes, self.mesh_shape)
