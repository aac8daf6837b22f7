"""The costs of a plan for one core: FLOPs, bytes sent, bytes of variables, and work that other cores do as well.

They are counted from the plan alone.
"""

from __future__ import annotations

import dataclasses

from meshtf.layout import Axes, axes_size
from meshtf.planning.core_positions import groups_over
from meshtf.planning.plan import Collective, Compute, Plan, Value, walk
from meshtf.planning.process_spans import crossing_axes, span_of


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind over the same mesh axes, and the bytes that each core sends in them."""

    kind: str
    axes: Axes
    count: int
    bytes_sent: int


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedWork:
    """Work that the `times` cores along `axes` all do. Each spends `flops` on it."""

    compute: Compute
    axes: Axes
    times: int
    flops: int


def stored_variables(plan: Plan) -> dict[str, Value]:
    """Returns a value in the stored layout and dtype, for each variable that the program reads or assigns."""
    stored = {i.name: i.output for i in plan.reads}
    for i in plan.assignments:
        stored.setdefault(i.name, i.input)
    return stored


def variable_bytes(plan: Plan) -> int:
    """Returns the bytes of variables on one core."""
    return sum(v.slice_bytes for v in stored_variables(plan).values())


def flops(plan: Plan) -> int:
    """Returns the floating-point operations of one core: 2*m*n*k for a matrix product, one per element of other
    work.
    """
    return sum(i.flops * times for i, times in walk(plan.instructions) if isinstance(i, Compute))


def collectives(plan: Plan) -> list[tuple[Collective, int]]:
    """Returns every collective, and how many times it runs at most."""
    return [(i, times) for i, times in walk(plan.instructions) if isinstance(i, Collective)]


def collective_bytes(collective: Collective, plan: Plan) -> int:
    """Returns the bytes that each core sends in one collective, by the best algorithm."""
    return collective.step.bytes_sent(collective.input.slice_bytes, plan.mesh_shape)


def bytes_between_processes(collective: Collective, plan: Plan) -> int:
    """Returns the bytes that a process sends to others in one collective, with all its cores."""
    if not plan.process_of_core:
        return 0
    return collective.step.bytes_between_processes(collective.input.slice_bytes, plan.mesh_shape, plan.process_of_core)


def stages(collective: Collective, plan: Plan) -> str:
    """Returns the steps of a collective that crosses processes, as text, and an empty text for others."""
    step, processes = collective.step, plan.process_of_core
    if not crossing_axes(step.axes, plan.mesh_shape, processes):
        return ""
    if step.destinations is not None:
        return "each core by itself"
    span = span_of(groups_over(step.axes, plan.mesh_shape), processes)
    return "each core by itself, as processes have unequal parts of its groups" if span is None else str(span)


def traffic(plan: Plan) -> list[Traffic]:
    """Returns the collectives by kind and mesh axes, most bytes first."""
    totals: dict[tuple[str, Axes], tuple[int, int]] = {}
    for collective, times in collectives(plan):
        key = (collective.step.kind, collective.step.axes)
        count, sent = totals.get(key, (0, 0))
        totals[key] = (count + times, sent + times * collective_bytes(collective, plan))
    found = [Traffic(kind, axes, count, sent) for (kind, axes), (count, sent) in totals.items()]
    return sorted(found, key=lambda t: -t.bytes_sent)


def repeated_work(plan: Plan) -> list[RepeatedWork]:
    """Returns local work that several cores all do, in program order. Views and trivial work are left out.

    An instruction is the same on cores that differ only along certain mesh axes: axes that split none of its inputs and
    outputs, and over which no sum in them is pending.
    """
    return [
        RepeatedWork(i, axes, axes_size(axes, plan.mesh_shape), i.flops * times)
        for i, times in walk(plan.instructions)
        if isinstance(i, Compute) and not (i.facts.is_view or i.facts.is_trivial)
        for axes in [_repeated_axes(i, plan)]
        if axes
    ]


def _repeated_axes(compute: Compute, plan: Plan) -> Axes:
    used = {a for v in (*compute.inputs, *compute.outputs) for a in (*v.layout.used, *v.pending)}
    return tuple(d.name for d in plan.mesh_shape if d.size > 1 and d.name not in used)
