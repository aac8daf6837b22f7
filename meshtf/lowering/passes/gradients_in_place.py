"""Adds gradients of stacked weights to their sum layer by layer, and not as a whole after the loop over layers.

A loop over micro-batches, or over the steps of a pipeline, carries a sum of each weight's gradients. Take weights
[layers:13 d_model d_ff]: a loop over layers inside it makes their gradient as a stack, which would stand beside the sum
at its full size. So (loop over layers that stacks the parts; transpose, mask and cast the stack; add it to the sum)
becomes (loop over layers that carries the sum, and transposes, masks, casts and adds each part in its place). Elements
are added as before and in the same order, so results are the same to the bit.

A term that is zero outside of one part is added to that part alone. A pipeline makes such terms where it reads one
round's weights.

Loops over layers may stand in others, as segments of recomputed layers do. The sum is carried into all of them.

The pass goes from the outermost loop inwards. In each loop it looks for a carried sum, follows its term back through
elementwise work, and stops at a loop that stacks it. Then the sum and that work move into this loop.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import TensorLayout
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.ops.algebra.elementwise_operation import broadcasting_kernel
from meshtf.ops.algebra.mask import masking, zero_elsewhere
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import (
    Carried,
    Compute,
    Instruction,
    Loop,
    Plan,
    Stacked,
    Value,
    used_directly,
    walk,
    with_nested_changed,
)
from meshtf.thresholds import MOST_PIECES


def add_gradients_in_place(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which a loop adds its parts to a carried sum, if it would have stacked them for that."""
    if not any(isinstance(inner, Loop) for i, _ in walk(plan.instructions) if isinstance(i, Loop) for inner in i.body):
        return plan
    numbers = itertools.count(1 + max(v.index for i, _ in walk(plan.instructions) for v in i.outputs))
    uses = collections.Counter(v for i, _ in walk(plan.instructions) for v in used_directly(i))
    zeros = {
        v for i, _ in walk(plan.instructions) if isinstance(i, Compute) and isinstance(i.emit, Zeros) for v in i.outputs
    }
    # A loop adds to the memory of the zeros, so nothing else may read them.
    rewriting = _Rewriting(numbers, options.smallest_added_in_place, {v for v in zeros if uses[v] == 1})
    return dataclasses.replace(plan, instructions=rewriting.rewritten(plan.instructions))


@dataclasses.dataclass(frozen=True, eq=False)
class _Addition:
    """The addition of a term to a carried value, or to the part of it at these positions."""

    compute: Compute
    total: Value
    term: Value
    places: tuple[_Place, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """A position of a dimension. If it is outside, nothing is added."""

    name: str
    index: Value
    may_be_outside: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class _Sinking:
    """An addition that can move into a loop, since its term is a stack of that loop after elementwise work.

    `work` goes from the first to the last, each on the result of the one before.
    """

    carried: Carried
    addition: _Addition
    stacked: Stacked
    work: tuple[Compute, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class _Rewriting:
    """The state of the pass.

    `zeros`: values of zeros that only one loop begins with. `placed`: the additions to parts that it has made, by
    results.
    """

    numbers: itertools.count[int]
    least_bytes: int
    zeros: set[Value]
    placed: dict[Value, _Addition] = dataclasses.field(default_factory=dict)

    def rewritten(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """Rewrites loops from the outermost inwards, so that a sum goes on to where its term is made."""
        changed = (self._sunk(i) if isinstance(i, Loop) else i for i in instructions)
        return tuple(with_nested_changed(i, self.rewritten) for i in changed)

    def _sunk(self, loop: Loop) -> Loop:
        loop = self._placed_in(loop)
        body = _Body(loop)
        by_loop: dict[Loop, list[_Sinking]] = {}
        for carried in loop.carried:
            if (addition := self._addition(carried, body)) and (found := self._sinking(carried, addition, body)):
                inner, sinking = found
                by_loop.setdefault(inner, []).append(sinking)
        every = [s for own in by_loop.values() for s in own]
        gone: set[Instruction] = {i for s in every for i in (s.addition.compute, *s.work)}
        changed = [self._adding(i, by_loop[i]) if isinstance(i, Loop) and i in by_loop else i for i in loop.body]
        return dataclasses.replace(loop, body=tuple(i for i in changed if i not in gone))

    def _placed_in(self, loop: Loop) -> Loop:
        """Returns the loop in which a term that is zero outside of one part is added to that part alone."""
        body = _Body(loop)
        changed: dict[Instruction, Instruction] = {}
        gone: set[Instruction] = set()
        for carried in loop.carried:
            addition = self._addition(carried, body)
            maker = None if addition is None else body.makers.get(addition.term)
            if addition is None or not isinstance(maker, Compute) or maker.facts.places_part is None:
                continue
            term, index = maker.inputs
            total = addition.total
            places = (_Place(total.shape.dims[maker.facts.places_part].name, index, may_be_outside=True),)
            is_short = _adding_to_part(total, places).num_rows > MOST_PIECES
            if body.uses[addition.term] != 1 or total.slice_bytes < self.least_bytes or is_short:
                continue
            compute = _added_at(addition.compute, total, term, carried.leaving, places)
            self.placed[carried.leaving] = _Addition(compute, total, term, places)
            changed[addition.compute] = compute
            gone.add(maker)
        instructions = tuple(changed.get(i, i) for i in loop.body if i not in gone)
        return dataclasses.replace(loop, body=instructions)

    def _addition(self, carried: Carried, body: _Body) -> _Addition | None:
        """Returns the addition that makes a carried value's next one, if nothing else reads either value."""
        total, compute = carried.entering, body.makers.get(carried.leaving)
        # Another reader could find the sum with some of the parts already added.
        if body.uses[total] != 1 or body.uses[carried.leaving] != 1 or not isinstance(compute, Compute):
            return None
        if carried.leaving in self.placed:
            return self.placed[carried.leaving]
        if (
            carried.initial not in self.zeros
            or compute.facts.kernel is not tf.add
            or compute.inputs[0] is not total
            or len(compute.inputs) != 2
        ):
            return None
        term = compute.inputs[1]
        # Only then does each part of the term belong to one part of the sum.
        is_alike = (term.shape, term.dtype, term.layout) == (total.shape, total.dtype, total.layout)
        return _Addition(compute, total, term, ()) if is_alike else None

    def _sinking(self, carried: Carried, addition: _Addition, body: _Body) -> tuple[Loop, _Sinking] | None:
        """Returns the loop that stacks the term, with the addition that can move into it, or None."""
        work: list[Compute] = []
        value, maker = addition.term, body.makers.get(addition.term)
        while isinstance(maker, Compute) and body.uses[value] == 1 and (before := _worked_on(maker)) is not None:
            work.insert(0, maker)
            value, maker = before, body.makers.get(before)
        if not isinstance(maker, Loop) or body.uses[value] != 1 or not _has_every_part(maker):
            return None
        stacked = next((s for s in maker.stacked if s.whole is value), None)
        if stacked is None or value.slice_bytes < self.least_bytes:
            return None
        name, along = value.shape.dims[0].name, [value, *(i.outputs[0] for i in work)]
        # If the stacked dimension is split over cores, the part of an iteration is on one of them only.
        if any(_axes_of(v, name) for v in along) or value.slice_shape[0] != maker.length:
            return None
        others = [v for i in work for v in i.inputs if v not in along]
        others += [p.index for p in addition.places]
        if any(v.shape.has(name) or body.is_made_after(v, maker) for v in others):
            return None
        if _adding_to_part(addition.total, (*addition.places, _Place(name, maker.index))).num_rows > MOST_PIECES:
            return None
        return maker, _Sinking(carried, addition, stacked, tuple(work))

    def _adding(self, loop: Loop, sinkings: Sequence[_Sinking]) -> Loop:
        """Returns a loop that adds its parts to carried sums and no longer stacks them."""
        carried, added = [], []
        for sinking in sinkings:
            total = sinking.addition.total
            entering, leaving = (dataclasses.replace(total, index=next(self.numbers)) for _ in range(2))
            name = sinking.stacked.whole.shape.dims[0].name
            work, term = self._on_part(sinking, name)
            places = (*sinking.addition.places, _Place(name, loop.index))
            compute = _added_at(sinking.addition.compute, entering, term, leaving, places)
            carried.append(Carried(total, entering, leaving, sinking.carried.leaving))
            added += [*work, compute]
            self.placed[leaving] = _Addition(compute, entering, term, places)
        gone = {s.stacked for s in sinkings}
        return dataclasses.replace(
            loop,
            carried=(*loop.carried, *carried),
            stacked=tuple(s for s in loop.stacked if s not in gone),
            body=(*loop.body, *added),
        )

    def _on_part(self, sinking: _Sinking, name: str) -> tuple[list[Compute], Value]:
        """Returns the work on one part of the stack instead of the whole, and the term that it makes."""
        whole, part = sinking.stacked.whole, sinking.stacked.part
        done: list[Compute] = []
        for i in sinking.work:
            output = _part_of(i.outputs[0], name, next(self.numbers))
            inputs = tuple(part if v is whole else v for v in i.inputs)
            assert i.facts.kernel is not None
            if i.facts.kernel is zero_elsewhere:
                emit = masking(*inputs)
            else:
                emit = broadcasting_kernel(i.facts.kernel, [v.shape for v in inputs], output.shape, output.slice_shape)
            is_view = i.facts.is_view and inputs[0].shape == output.shape
            facts = dataclasses.replace(i.facts, is_view=is_view)
            flops = i.flops // whole.shape.dims[0].size
            done.append(dataclasses.replace(i, inputs=inputs, outputs=(output,), emit=emit, facts=facts, flops=flops))
            whole, part = i.outputs[0], output
        return done, part


class _Body:
    """The instructions of a loop: which one makes each value, and how often each value is used."""

    def __init__(self, loop: Loop) -> None:
        self.makers = {v: i for i in loop.body for v in i.outputs}
        self.uses = collections.Counter(v for i, _ in walk(loop.body) for v in used_directly(i))
        self.uses.update([*(c.leaving for c in loop.carried), *(s.part for s in loop.stacked)])
        self._places = {i: n for n, i in enumerate(loop.body)}

    def is_made_after(self, value: Value, instruction: Instruction) -> bool:
        return value in self.makers and self._places[self.makers[value]] > self._places[instruction]


def _worked_on(compute: Compute) -> Value | None:
    """Returns the one full-sized operand of elementwise work, or None if there are several: others are broadcast."""
    if compute.facts.kernel is None or len(compute.outputs) != 1:
        return None
    names = {d.name for d in compute.outputs[0].shape}
    full = [v for v in compute.inputs if {d.name for d in v.shape} == names]
    return full[0] if len(full) == 1 else None


def _has_every_part(loop: Loop) -> bool:
    """Tells whether the loop always runs all its iterations, and so makes every part of its stacks."""
    return loop.count is None and loop.condition is None and loop.is_bounded and loop.compilation is None


def _axes_of(value: Value, name: str) -> tuple[str, ...]:
    return value.layout.axes[value.shape.axis(name)]


def _part_of(value: Value, name: str, index: int) -> Value:
    axis = value.shape.axis(name)
    kept = [n for n in range(value.shape.ndims) if n != axis]
    return dataclasses.replace(
        value,
        index=index,
        shape=Shape([value.shape.dims[n] for n in kept]),
        layout=TensorLayout(tuple(value.layout.axes[n] for n in kept)),
        slice_shape=tuple(value.slice_shape[n] for n in kept),
    )


def _adding_to_part(total: Value, places: Sequence[_Place]) -> AddToPart:
    axes = tuple(total.shape.axis(p.name) for p in places)
    checked = tuple(axis for axis, p in zip(axes, places, strict=True) if p.may_be_outside)
    return AddToPart(total.slice_shape, axes, checked)


def _added_at(addition: Compute, entering: Value, term: Value, leaving: Value, places: Sequence[_Place]) -> Compute:
    """Returns the addition of a term to the part of a value at these positions."""
    inputs = (entering, term, *(p.index for p in places))
    flops, facts = math.prod(term.slice_shape), WorkFacts(adds_to_part=True)
    emit = _adding_to_part(entering, places)
    return dataclasses.replace(addition, inputs=inputs, outputs=(leaving,), emit=emit, flops=flops, facts=facts)
