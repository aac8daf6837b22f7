"""What a plan costs one core: memory, FLOPs, bytes sent, and work that other cores do as well. From the plan alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.graph import Operation
from meshtf.layout import Axes, axes_size
from meshtf.lowering.plan import (
    Branch,
    Collective,
    Compute,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
    walk,
)

CHEAP_KINDS = frozenset({"constant", "range", "slice"})
"""Local work that is not worth splitting, and that `repeated_work` leaves out; views are left out as well."""


@dataclasses.dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory that one core needs at once, in bytes, and the operation during which it does.

    total: all of it. variables, feeds: the parts that are there during the whole program.
    """

    total: int
    variables: int
    feeds: int
    operation: Operation | None


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind over the same mesh axes, and the bytes that each core sends in them."""

    kind: str
    axes: Axes
    count: int
    bytes_sent: int


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedWork:
    """Work that `times` cores, those along `axes`, do alike; `flops` on each of them."""

    compute: Compute
    axes: Axes
    times: int
    flops: int


def stored_variables(plan: Plan) -> dict[str, Value]:
    """Of each variable that the program reads or assigns, a value in the layout and dtype in which it is stored."""
    stored = {i.name: i.output for i in plan.reads}
    for i in plan.assignments:
        stored.setdefault(i.name, i.input)
    return stored


def variable_bytes(plan: Plan) -> int:
    """Bytes of variables on one core."""
    return sum(v.slice_bytes for v in stored_variables(plan).values())


def peak_memory(plan: Plan) -> PeakMemory:
    """The most memory that one core needs at once, were the instructions executed in the order of the plan.

    Counted: the slices of all variables and the arrays fed, from beginning to end; every value from the instruction
    that makes it to the last one that uses it, inputs and outputs of an instruction together; fetches, and new values
    of variables, to the end. A view (a reshape, a variable as it is read) takes nothing but keeps what it shows.

    Not counted: scratch memory inside an operation, what the runtime holds, and what it saves by writing an output
    over an input. The runtime may also execute independent instructions in another order.
    """
    owner = _owners(plan)
    last_use = _last_uses(plan, owner)
    variables, feeds = variable_bytes(plan), sum(f.output.slice_bytes for f in plan.feeds)
    live = variables + feeds
    peak, at = live, None
    for position, instruction in enumerate(plan.instructions):
        made = _allocated(instruction, owner)
        live += sum(v.slice_bytes for v in made)
        inside = max((_peak_inside(body, bound) for body, bound in _bodies(instruction)), default=0)
        if live + inside > peak:
            peak, at = live + inside, instruction.operation
        freed = {owner[v] for v in (*instruction.inputs, *made)}
        live -= sum(v.slice_bytes for v in freed if last_use.get(v) == position)
    return PeakMemory(peak, variables, feeds, at)


def _bodies(instruction: Instruction) -> list[tuple[Sequence[Instruction], Sequence[Value]]]:
    """Instructions nested in one, and the values that they are given."""
    if isinstance(instruction, Loop):
        # A value carried enters an iteration in the memory that its result has after the last.
        return [(instruction.body, [s.part for s in instruction.sliced])]
    if isinstance(instruction, Branch):
        return [(instruction.if_true, ()), (instruction.if_false, ())]
    return []


def _peak_inside(body: Sequence[Instruction], bound: Sequence[Value]) -> int:
    """The most memory that one iteration needs at once beside what is there outside."""
    owner = {v: v for v in bound}
    last: dict[Value, int] = {}
    for position, i in enumerate(body):
        is_view = isinstance(i, Compute) and i.is_view
        owner.update({v: owner.get(i.inputs[0], i.inputs[0]) if is_view else v for v in i.outputs})
        last.update({owner.get(v, v): position for v in (*i.inputs, *i.outputs)})
    own = set(owner.values())
    peak = live = sum(v.slice_bytes for v in bound)
    for position, i in enumerate(body):
        made = [v for v in i.outputs if owner[v] is v]
        live += sum(v.slice_bytes for v in made)
        peak = max(peak, live + max((_peak_inside(*nested) for nested in _bodies(i)), default=0))
        freed = {owner.get(v, v) for v in (*i.inputs, *i.outputs)} & own
        live -= sum(v.slice_bytes for v in freed if last[v] == position)
    return peak


def flops(plan: Plan) -> int:
    """Floating-point operations of one core: 2*m*n*k for a matrix product, one per element of other work."""
    return sum(i.flops * times for i, times in walk(plan.instructions) if isinstance(i, Compute))


def collectives(plan: Plan) -> list[tuple[Collective, int]]:
    """Every collective, and how many times it runs at most."""
    return [(i, times) for i, times in walk(plan.instructions) if isinstance(i, Collective)]


def collective_bytes(collective: Collective, plan: Plan) -> int:
    """Bytes that each core sends in one collective, by the best algorithm."""
    return collective.step.bytes_sent(collective.input.slice_bytes, plan.mesh_shape)


def traffic(plan: Plan) -> list[Traffic]:
    """Collectives by kind and mesh axes, most bytes first."""
    totals: dict[tuple[str, Axes], tuple[int, int]] = {}
    for collective, times in collectives(plan):
        key = (collective.step.kind, collective.step.axes)
        count, sent = totals.get(key, (0, 0))
        totals[key] = (count + times, sent + times * collective_bytes(collective, plan))
    found = [Traffic(kind, axes, count, sent) for (kind, axes), (count, sent) in totals.items()]
    return sorted(found, key=lambda t: -t.bytes_sent)


def repeated_work(plan: Plan) -> list[RepeatedWork]:
    """Local work that several cores do alike, in program order; views and CHEAP_KINDS are left out.

    Cores that differ only along mesh axes which split no input and no output of an instruction, and over which no sum
    is pending in them, do the same work.
    """
    return [
        RepeatedWork(i, axes, axes_size(axes, plan.mesh_shape), i.flops * times)
        for i, times in walk(plan.instructions)
        if isinstance(i, Compute) and not (i.is_view or (i.kind in CHEAP_KINDS and not i.flops))
        for axes in [_repeated_axes(i, plan)]
        if axes
    ]


def _repeated_axes(compute: Compute, plan: Plan) -> Axes:
    used = {a for v in (*compute.inputs, *compute.outputs) for a in (*v.layout.used, *v.pending)}
    return tuple(d.name for d in plan.mesh_shape if d.size > 1 and d.name not in used)


def _owners(plan: Plan) -> dict[Value, Value]:
    """For each value the one whose memory it is: itself, or what it is a view of."""
    owner: dict[Value, Value] = {}
    stored = stored_variables(plan)
    for i in plan.instructions:
        for value in i.outputs:
            owner[value] = value
        if isinstance(i, Compute) and i.is_view:
            owner[i.outputs[0]] = owner[i.inputs[0]]
        elif isinstance(i, ReadVariable):
            owner[i.output] = stored[i.name]
    return owner


def _last_uses(plan: Plan, owner: dict[Value, Value]) -> dict[Value, int]:
    """The position of the instruction after which the memory is free; none for what stays to the end."""
    last: dict[Value, int] = {}
    for position, i in enumerate(plan.instructions):
        for value in (*i.inputs, *i.outputs):
            last[owner[value]] = position
    for value in _kept(plan):
        last.pop(owner[value], None)
    return last


def _kept(plan: Plan) -> Sequence[Value]:
    stored = [i.output for i in plan.instructions if isinstance(i, Feed | ReadVariable)]
    return [*stored, *plan.fetches, *(i.input for i in plan.assignments), *(c.value for c in plan.checks)]


def _allocated(instruction: Instruction, owner: dict[Value, Value]) -> list[Value]:
    if isinstance(instruction, Feed | ReadVariable):
        return []
    return [v for v in instruction.outputs if owner[v] is v]
