"""Lowers loops to the plan's `Loop`.

A carried value keeps one layout, so that each iteration can use the result of the last one. Its sums over cores are
done at the end of each iteration. Sums of accumulated values stay pending until the loop ends, so cores communicate
once. Variables that the body assigns are carried as well.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.control_flow._block_lowering import assigned_variables, constant_like, lower_operations
from meshtf.control_flow.loops.loop_spec import (
    AccumulatedTensor,
    CarriedTensor,
    Counted,
    LoopSpec,
    Numbering,
    SlicedTensor,
    StackedTensor,
)
from meshtf.dimension import Dimension, Shape
from meshtf.errors import GraphError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.ops.algebra.elementwise_operation import CastKernel
from meshtf.ops.variables.variable import Variable
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.open_check import OpenCheck
from meshtf.planning.pending_sums import block_sums, needed_inside
from meshtf.planning.plan import (
    NOWHERE,
    Carried,
    Condition,
    Core,
    Loop,
    LoopCompilation,
    LoopUnrolling,
    Sliced,
    Stacked,
    Value,
)
from meshtf.planning.planner import Planner

if TYPE_CHECKING:
    from meshtf.control_flow.loops.loop import LoopOperation

_SCALAR = (Shape([]), tf.int32, TensorLayout(()))


def lower_loop(operation: LoopOperation, planner: Planner) -> None:
    """Adds a `Loop` to the plan."""
    leaving = dict(zip(operation.spec.terms, operation.accumulated_outputs, strict=True))
    inner = planner.inside(operation.pending_sums(planner.layouts), operation.captures, leaving)
    _LoopLowering(operation, operation.spec, planner, inner).lower()


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A carried value, before the loop and at the start of an iteration."""

    initial: Value
    entering: Value


@dataclasses.dataclass(frozen=True, eq=False)
class _LoopLowering:
    """Lowers a loop: `outer` plans the program around it, `inner` its body."""

    operation: LoopOperation
    spec: LoopSpec
    outer: Planner
    inner: Planner

    def lower(self) -> None:
        spec, inner, operations = self.spec, self.inner, needed_inside(self.spec.body)
        index = self._index()
        sliced = [self._slice(s) for s in spec.sliced]
        entries = [self._enter(c) for c in spec.carried]
        variables = self._enter_variables(operations)
        lower_operations(operations, self.operation, inner, self.outer)
        # Each value leaves an iteration in the layout in which the next one reads it.
        leaving = [inner.read(c.leaving, self.outer.layouts[c.entering], None) for c in spec.carried]
        carried = [self._carry(entry, value) for entry, value in zip(entries, leaving, strict=True)]
        assigned = {name: self._carry(entry, inner.variables.assigned[name]) for name, entry in variables.items()}
        totals = zip(spec.accumulated, self.operation.accumulated_outputs, strict=True)
        # Zeros that depend on an initial value are made when the loop begins, not at the start of the program.
        first = [entry.initial for entry in entries[:1]]
        accumulated = [self._accumulate(term, output, first) for term, output in totals]
        checks = {check: self._carry_check(check) for check in inner.checks.open}
        stacked = [self._stack(s, y) for s, y in zip(spec.stacked, self.operation.stacked_outputs, strict=True)]
        trips = self.outer.record.value(*_SCALAR)
        condition = self._condition(index, carried, assigned)
        self.outer.record.add(
            Loop(
                operation=self.operation,
                length=spec.dim.size,
                count=None if spec.iterations.count is None else self.outer.read(spec.iterations.count),
                condition=condition,
                is_reversed=spec.iterations.is_reversed,
                index=index,
                carried=(*carried, *assigned.values(), *accumulated, *(c for own in checks.values() for c in own)),
                sliced=tuple(sliced),
                stacked=tuple(stacked),
                body=inner.record.instructions,
                trips=trips,
                pipeline=spec.pipeline,
                compilation=LoopCompilation() if spec.asks_to_be_compiled else None,
                unrolling=LoopUnrolling(spec.computes_again) if spec.numbering.counted is Counted.LAYERS else None,
                may_overrun=spec.may_overrun and not (assigned or accumulated or checks or stacked),
            )
        )
        totals = [_converted(c.result, a.dtype, self.outer) for c, a in zip(accumulated, spec.accumulated, strict=True)]
        results = [*(c.result for c in carried), *(s.whole for s in stacked), *totals, trips]
        for output, value in zip(self.operation.outputs, results, strict=True):
            self.outer.write(output, value)
        for name, carry in assigned.items():
            self.outer.variables.assign(name, carry.result)
        for check, carries in checks.items():
            self.outer.checks.add(check.outside([c.result for c in carries]))

    # The number of the iteration

    def _index(self) -> Value:
        """The number of the iteration, on which random bits depend."""
        inner, outer, numbering = self.inner, self.outer, self.spec.numbering
        index = inner.record.value(*_SCALAR)
        around = outer.loops
        if isinstance(numbering.counted, MicrobatchCut):
            microbatches = ((numbering.counted, index), *around.microbatches)
            inner.loops = dataclasses.replace(around, microbatches=microbatches)
        elif numbering.counted is Counted.LAYERS:
            inner.loops = dataclasses.replace(around, layers=self._numbers(numbering, around.layers, index))
        elif numbering.counted is Counted.ITERATIONS:
            inner.loops = dataclasses.replace(around, iterations=self._numbers(numbering, around.iterations, index))
        return index

    def _numbers(self, numbering: Numbering, around: tuple[Value, ...], index: Value) -> tuple[Value, ...]:
        """The iteration numbers of the enclosing loops, followed by this loop's.

        A segment of a nested scan continues the count of the previous segment. In a loop over the examples of a
        micro-batch, each number is the example's position in the whole batch.
        """
        dim, inner = self.spec.dim, self.inner
        *outermost, number = (*around, index)
        if numbering.is_segment:
            *outermost, segment = around
            (number,) = inner.compute("index", lambda core, s, i: s * dim.size + i, [segment, index], [_SCALAR])
        for cut, microbatch in inner.loops.microbatches:
            if cut.dimension(Shape([dim])) is not None:
                emit = functools.partial(_place_in_batch, cut, dim)
                (number,) = inner.compute("index", emit, [number, microbatch], [_SCALAR])
        return (*outermost, number)

    # Inputs of an iteration

    def _slice(self, sliced: SlicedTensor) -> Sliced:
        whole, axis = sliced.whole, sliced.axis
        own = self._layout_of_parts(sliced).axes
        given = self.outer.read(whole, TensorLayout(tuple(() if i == axis else a for i, a in enumerate(own))), None)
        layout = TensorLayout(tuple(a for i, a in enumerate(own) if i != axis))
        shape = Shape([d for i, d in enumerate(whole.shape) if i != axis])
        part = self.inner.record.value(shape, whole.dtype, layout)
        self.inner.tensors.give(sliced.part, part)
        return Sliced(given, axis, part)

    def _layout_of_parts(self, sliced: SlicedTensor) -> TensorLayout:
        """The layout in which a tensor that is sliced enters the loop.

        If rules keep a stack of weights split, it stays split: each iteration gathers its part and frees it. Inside
        another loop, such as one over tokens to decode, it is gathered first, since that loop would repeat all the
        gathering. Loops over layers or micro-batches are no such loops.
        """
        kept = _kept_elsewhere(sliced.whole, self.outer)
        if kept is None or kept.axes[sliced.axis] or self.outer.loops.iterations:
            return self.outer.layouts[sliced.whole]
        return kept

    def _enter(self, carried: CarriedTensor) -> _Entry:
        inside, layout = carried.entering, self.outer.layouts[carried.entering]
        entering = self.inner.record.value(inside.shape, inside.dtype, layout)
        self.inner.tensors.give(inside, entering)
        return _Entry(self.outer.read(carried.initial, layout, None), entering)

    def _enter_variables(self, operations: list[Operation]) -> dict[str, _Entry]:
        """The variables that the body assigns, by name."""
        # The next iteration needs the value that an iteration assigns, so the loop carries it like a tensor.
        entries = {}
        for name, variable in assigned_variables(operations).items():
            initial = self.outer.variables.stored(variable)
            entering = self.inner.record.value(initial.shape, initial.dtype, initial.layout)
            self.inner.variables.set_stored(name, entering)
            entries[name] = _Entry(initial, entering)
        return entries

    # Results of an iteration

    def _carry(self, entry: _Entry, leaving: Value) -> Carried:
        initial, entering = entry.initial, entry.entering
        result = self.outer.record.value(initial.shape, initial.dtype, entering.layout, entering.pending)
        return Carried(initial, entering, leaving, result)

    def _accumulate(self, accumulated: AccumulatedTensor, output: Tensor, after: Sequence[Value]) -> Carried:
        tensor, wanted = accumulated.term, None
        if accumulated.gradient_of is not None and _kept_elsewhere(accumulated.gradient_of, self.outer) is not None:
            wanted = self.outer.readers.layout_wanted(output)
        term = self.inner.tensors.left(tensor) if wanted is None else self.inner.read(tensor, wanted)
        # In a narrow dtype, many small terms would each be rounded away.
        return self._added_up(_converted(term, sum_dtype(tensor.dtype), self.inner), after)

    def _added_up(self, term: Value, after: Sequence[Value] = ()) -> Carried:
        """The sum of a term over the iterations. The sum over cores stays pending."""
        zeros = constant_like(self.outer, term, 0, after)
        entering = self.inner.record.value(term.shape, term.dtype, term.layout, term.pending)
        spec = (term.shape, term.dtype, term.layout)
        add, pending = (lambda core, total, x: tf.add(total, x)), term.pending
        facts = WorkFacts(kernel=tf.add)
        (leaving,) = self.inner.compute("accumulate", add, [entering, term], [spec], pending=pending, facts=facts)
        return self._carry(_Entry(zeros, entering), leaving)

    def _carry_check(self, check: OpenCheck) -> list[Carried]:
        """Carries the number of failures in all iterations, and the place of the first failure."""
        return [self._added_up(check.failures), *(self._first(f.value) for f in check.findings)]

    def _first(self, place: Value) -> Carried:
        spec = (place.shape, place.dtype, place.layout)
        entering = self.inner.record.value(*spec)
        (leaving,) = self.inner.compute(
            "first", lambda core, first, now: tf.where(first == NOWHERE, now, first), [entering, place], [spec]
        )
        return self._carry(_Entry(constant_like(self.outer, place, NOWHERE), entering), leaving)

    def _stack(self, stacked: StackedTensor, output: Tensor) -> Stacked:
        tensor, own = stacked.part, self.outer.layouts[stacked.part]
        of_gradient = self._layout_wanted_of_gradient(stacked, output)
        if of_gradient not in (None, own):
            part = self.inner.read(tensor, of_gradient, None)
        else:
            # The sum over cores stays pending and is done once for all iterations. In another layout than the tensor's
            # own this would need more memory.
            part = self.inner.tensors.left(tensor)
            part = part if part.layout == own else self.inner.read(tensor, fill=None)
        # The dimension of the iterations is not split, because every core runs all iterations.
        layout = TensorLayout(((), *part.layout.axes))
        return Stacked(part, self.outer.record.value(stacked.shape, tensor.dtype, layout, part.pending))

    def _layout_wanted_of_gradient(self, stacked: StackedTensor, output: Tensor) -> TensorLayout | None:
        """The layout for each iteration's part of a gradient, if all readers use it split like the kept variable."""
        if stacked.gradient_of is None or _kept_elsewhere(stacked.gradient_of, self.outer) is None:
            return None
        wanted = self.outer.readers.layout_wanted(output)
        if wanted is None or wanted.axes[0]:
            return None
        return TensorLayout(wanted.axes[1:])

    # Condition of the loop

    def _condition(self, index: Value, carried: list[Carried], assigned: dict[str, Carried]) -> Condition | None:
        block, outer = self.spec.iterations.condition, self.outer
        if block is None:
            return None
        # The condition is planned separately. It reads the values as they enter an iteration, before the body runs.
        inner = outer.inside(block_sums(block, block.outputs, outer.layouts), block.captures)
        inner.loops = dataclasses.replace(outer.loops, iterations=(*outer.loops.iterations, index))
        values = [c.entering for c in [*carried, *assigned.values()]]
        entering = [inner.record.value(v.shape, v.dtype, v.layout) for v in values]
        for tensor, value in zip(block.bound, entering, strict=False):
            inner.tensors.give(tensor, value)
        for name, value in zip(assigned, entering[len(carried) :], strict=True):
            inner.variables.set_stored(name, value)
        lower_operations(needed_inside(block), self.operation, inner, outer)
        goes_on = inner.read(block.outputs[0])
        for check in inner.checks.open:
            raise GraphError(
                f"{check.operation.name} is checked in the condition of {self.operation.name}, where no step can be "
                f"ended; compute it in the loop's body, and carry it to the condition\n  at {check.operation.site}"
            )
        return Condition(tuple(entering), inner.record.instructions, goes_on)


def _place_in_batch(
    cut: MicrobatchCut, dim: Dimension, core: Core, position: tf.Tensor, microbatch: tf.Tensor
) -> tf.Tensor:
    """Converts a position along a micro-batch's dimension to the position in the whole batch."""
    together = cut.neighbours_along(dim)
    return (position // together * cut.count + microbatch) * together + position % together


def _kept_elsewhere(x: Tensor, planner: Planner) -> TensorLayout | None:
    """The layout in which rules keep x, if x is a variable that is used in a different layout; else None.

    It is also None if the variable is split only because its update is divided. Such a variable is gathered once, and
    not in every iteration.
    """
    if not isinstance(x.operation, Variable):
        return None
    kept, own = planner.variables.layout(x.operation), planner.layouts
    return None if kept in (own[x], own.kept.get(x.operation.full_name)) else kept


def _converted(value: Value, dtype: tf.DType, planner: Planner) -> Value:
    if value.dtype == dtype:
        return value
    cast, spec = CastKernel(dtype), (value.shape, dtype, value.layout)
    facts = WorkFacts(kernel=cast, is_cast=True)
    return planner.compute("cast", lambda core, x: cast(x), [value], [spec], pending=value.pending, facts=facts)[0]
