"""What a plan costs one core: memory, FLOPs, bytes sent, and work that other cores do as well. From the plan alone."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.layout import Axes, axes_size
from meshtf.lowering.passes.early_updates import is_part_of_update
from meshtf.lowering.passes.update_fusion import updates_in_place
from meshtf.lowering.report._execution_orders import collectives_early, collectives_late
from meshtf.planning.plan import (
    Branch,
    Collective,
    Compute,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
    used_directly,
    walk,
)
from meshtf.planning.process_spans import crossing_axes, groups_over, span_of


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
class WorkingMemory:
    """Bytes of one core beside variables and feeds: the most that gradients (and what updates make of them) need at
    once, and the most that all else does. They need not be at the same time."""

    gradients: int
    activations: int


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


def memory(plan: Plan) -> tuple[PeakMemory, WorkingMemory]:
    """As `peak_memory` and `working_memory`, for less than both."""
    moments = _moments_of_orders(plan)
    return _peak(plan, moments), _working(plan, moments)


def peak_memory(plan: Plan) -> PeakMemory:
    """The most memory that one core needs at once, were the instructions executed in the order of the plan; or, if that
    is more, with every collective as late or as early as it can be, as where other cores are slow or fast.

    Counted: the slices of all variables and the arrays fed, from beginning to end; every value from the instruction
    that makes it to the last one that uses it, inputs and outputs of an instruction together; what collectives receive
    and put in order; fetches to the end. A new value of a variable takes the place of the old one as soon as both are
    through, or at the end where checks decide whether it does; an update that is fused and in place needs none, if
    nothing else needs the variable any more. A loop writes what it stacks where it stays, and what it carries where the
    initial value was, if nothing else needs that; a sum is written over as its parts are added to. A view (a reshape,
    a variable as it is read) takes nothing but keeps what it shows.

    Not counted: scratch memory of a kernel, what the runtime and its allocators hold, on GPUs a second time what loops
    stack and others read as a whole, and what TensorFlow saves by writing an output over an input elsewhere. It may
    also execute independent local work in another order.
    """
    return _peak(plan, _moments_of_orders(plan))


def _peak(plan: Plan, moments: Sequence[Sequence[Moment]]) -> PeakMemory:
    peaks = [max(own, key=lambda m: m.total, default=None) for own in moments]
    variables, feeds = variable_bytes(plan), sum(f.output.slice_bytes for f in plan.feeds)
    peak = max((p for p in peaks if p is not None), key=lambda m: m.total, default=None)
    if peak is None or peak.total <= variables + feeds:
        return PeakMemory(variables + feeds, variables, feeds, None)
    return PeakMemory(peak.total, variables, feeds, peak.operation)


def largest_at_peak(plan: Plan, count: int) -> list[tuple[Value, str]]:
    """The largest of what a core has in memory at the peak of `peak_memory`, and the operation or variable of each."""
    orders, moments = _orders(plan), _moments_of_orders(plan)
    peaks = [max((m.total for m in own), default=0) for own in moments]
    order = orders[peaks.index(max(peaks))]
    totals = [m.total for m in _moments(order, *_facts_of_every_order(plan))]
    peak = totals.index(max(totals)) if totals else -1
    owner, names = memory_owners(order), {value: name for name, value in stored_variables(order).items()}
    freed, live = _freed(order, owner), dict(names)
    for position, instruction in enumerate(order.instructions[: peak + 1]):
        made = instruction.outputs if isinstance(instruction, Feed) else _allocated(instruction, owner)
        live.update(dict.fromkeys(made, instruction.operation.name))
        for value in freed.get(position, ()) if position < peak else ():
            live.pop(value, None)
    return sorted(live.items(), key=lambda item: -item[0].slice_bytes)[:count]


def working_memory(plan: Plan) -> WorkingMemory:
    """As `peak_memory`, of gradients and of activations by themselves."""
    return _working(plan, _moments_of_orders(plan))


def _working(plan: Plan, moments: Sequence[Sequence[Moment]]) -> WorkingMemory:
    standing = variable_bytes(plan) + sum(f.output.slice_bytes for f in plan.feeds)
    activations = max((m.total - m.gradients - standing for own in moments for m in own), default=0)
    return WorkingMemory(max((m.gradients for own in moments for m in own), default=0), max(activations, 0))


def _orders(plan: Plan) -> list[Plan]:
    """The plan, with its instructions in each order that is looked at."""
    if not plan.collectives:
        return [plan]
    orders = (plan.instructions, collectives_late(plan), collectives_early(plan))
    return [dataclasses.replace(plan, instructions=tuple(order)) for order in orders]


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """While an instruction runs: all memory in use; of gradients among it; and what is there for the while alone."""

    total: int
    gradients: int
    temporary: int
    operation: Operation


def moments(plan: Plan) -> list[Moment]:
    """One for each instruction that stands in no other, in the plan's order."""
    return list(_moments(plan, *_facts_of_every_order(plan)))


def _moments_of_orders(plan: Plan) -> list[list[Moment]]:
    facts = _facts_of_every_order(plan)
    return [list(_moments(order, *facts)) for order in _orders(plan)]


def _facts_of_every_order(plan: Plan) -> tuple[set[Value], set[Value], _Space]:
    """What is the same in whatever order the instructions of a plan are executed, found once: the values of gradients
    and of variables, and the space that instructions take."""
    return gradient_values(plan), set(stored_variables(plan).values()), _Space(plan.mesh_shape)


def _moments(plan: Plan, gradients: set[Value], stored: set[Value], space: _Space) -> Iterator[Moment]:
    owner = memory_owners(plan)
    freed = _freed(plan, owner)
    live = variable_bytes(plan) + sum(f.output.slice_bytes for f in plan.feeds)
    live_gradients = 0
    for position, instruction in enumerate(plan.instructions):
        made = _allocated(instruction, owner)
        live += sum(v.slice_bytes for v in made)
        live_gradients += sum(v.slice_bytes for v in made if v in gradients)
        temporary = space.of(instruction)
        yield Moment(live + temporary, live_gradients, temporary, instruction.operation)
        live -= sum(v.slice_bytes for v in freed.get(position, ()))
        # A new value is the variable's from where the old one is freed.
        live_gradients -= sum(v.slice_bytes for v in freed.get(position, ()) if v in gradients or v in stored)


def gradient_values(plan: Plan) -> set[Value]:
    """Of the weights that are assigned: their gradients, as terms, sums and slices, and what updates make of them."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    found: set[Value] = set()
    waiting = [i.input for i in plan.assignments]
    while waiting:
        value = waiting.pop()
        producer = producers[value]
        if value in found or isinstance(producer, ReadVariable | Feed) or not value.shape.dims:
            continue
        found.add(value)
        if is_part_of_update(producer):
            waiting.extend(producer.inputs)
    return found


def _bodies(instruction: Instruction) -> list[tuple[Sequence[Instruction], Sequence[Value]]]:
    """Instructions nested in one, and the values that they are given."""
    if isinstance(instruction, Loop):
        # A value carried enters an iteration in the memory that its result has after the last.
        return [(instruction.body, [s.part for s in instruction.sliced])]
    if isinstance(instruction, Branch):
        return [(instruction.if_true, ()), (instruction.if_false, ())]
    return []


@dataclasses.dataclass(frozen=True, slots=True)
class _Space:
    """How much memory an instruction takes beside its inputs and outputs."""

    mesh_shape: Shape
    found: dict[Instruction, int] = dataclasses.field(default_factory=dict)

    def of(self, instruction: Instruction) -> int:
        if instruction not in self.found:
            self.found[instruction] = self._of(instruction)
        return self.found[instruction]

    def _of(self, instruction: Instruction) -> int:
        if isinstance(instruction, Collective):
            return instruction.step.scratch_bytes(instruction.input, instruction.output, self.mesh_shape)
        added = _written_over(instruction) if isinstance(instruction, Loop) else {}
        return max((self._peak_inside(body, bound, added) for body, bound in _bodies(instruction)), default=0)

    def _peak_inside(self, body: Sequence[Instruction], bound: Sequence[Value], added: Mapping[Value, Value]) -> int:
        """The most memory that one iteration needs at once beside what is there outside, with which `added` begins."""
        owner = {v: v for v in bound}
        last: dict[Value, int] = {}
        for position, i in enumerate(body):
            is_view = isinstance(i, Compute) and i.facts.is_view
            shown = {v: i.inputs[0] if is_view else added.get(v, v) for v in i.outputs}
            owner.update({v: owner.get(own, own) for v, own in shown.items()})
            last.update({owner.get(v, v): position for v in (*i.inputs, *i.outputs)})
        own = {v for v, memory in owner.items() if memory is v}
        peak = live = sum(v.slice_bytes for v in bound)
        for position, i in enumerate(body):
            made = [v for v in i.outputs if owner[v] is v]
            live += sum(v.slice_bytes for v in made)
            peak = max(peak, live + self.of(i))
            freed = {owner.get(v, v) for v in (*i.inputs, *i.outputs)} & own
            live -= sum(v.slice_bytes for v in freed if last[v] == position)
        return peak


def _written_over(loop: Loop) -> dict[Value, Value]:
    """Inside a loop, carried values' next ones that are made element by element, or by adding to parts, here or in a
    loop inside, where nothing else needs the present one: they are written over it. By them, the values that enter."""
    uses = collections.Counter(v for i, _ in walk(loop.body) for v in used_directly(i))
    uses.update([*(c.leaving for c in loop.carried), *(s.part for s in loop.stacked)])
    entering = {c.leaving: c.entering for c in loop.carried if uses[c.entering] == 1 and uses[c.leaving] == 1}
    found = {}
    for i in loop.body:
        if isinstance(i, Compute) and (i.facts.kernel is not None or i.facts.adds_to_part):
            found.update({v: entering[v] for v in i.outputs if entering.get(v) in i.inputs})
        elif isinstance(i, Loop):
            found.update({c.result: c.initial for c in i.carried if entering.get(c.result) is c.initial})
    return found


def flops(plan: Plan) -> int:
    """Floating-point operations of one core: 2*m*n*k for a matrix product, one per element of other work."""
    return sum(i.flops * times for i, times in walk(plan.instructions) if isinstance(i, Compute))


def collectives(plan: Plan) -> list[tuple[Collective, int]]:
    """Every collective, and how many times it runs at most."""
    return [(i, times) for i, times in walk(plan.instructions) if isinstance(i, Collective)]


def collective_bytes(collective: Collective, plan: Plan) -> int:
    """Bytes that each core sends in one collective, by the best algorithm."""
    return collective.step.bytes_sent(collective.input.slice_bytes, plan.mesh_shape)


def bytes_between_processes(collective: Collective, plan: Plan) -> int:
    """Bytes that a process sends to others in one collective, all its cores together."""
    if not plan.process_of_core:
        return 0
    return collective.step.bytes_between_processes(collective.input.slice_bytes, plan.mesh_shape, plan.process_of_core)


def stages(collective: Collective, plan: Plan) -> str:
    """How a collective goes that crosses processes; empty of one that does not."""
    step, processes = collective.step, plan.process_of_core
    if not crossing_axes(step.axes, plan.mesh_shape, processes):
        return ""
    if step.destinations is not None:
        return "each core by itself"
    span = span_of(groups_over(step.axes, plan.mesh_shape), processes)
    return "each core by itself, as processes have unequal parts of its groups" if span is None else str(span)


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
    """Local work that several cores do alike, in program order; views and trivial work are left out.

    Cores that differ only along mesh axes which split no input and no output of an instruction, and over which no sum
    is pending in them, do the same work.
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


def memory_owners(plan: Plan) -> dict[Value, Value]:
    """For each value the one whose memory it is: itself, or what it is a view of."""
    owner: dict[Value, Value] = {}
    stored = stored_variables(plan)
    given_away = _given_away(plan)
    for i in plan.instructions:
        for value in i.outputs:
            owner[value] = value
        if isinstance(i, Compute) and i.facts.is_view:
            owner[i.outputs[0]] = owner[i.inputs[0]]
        elif isinstance(i, ReadVariable):
            owner[i.output] = stored[i.name]
        elif isinstance(i, Loop):
            owner.update({c.result: owner[c.initial] for c in i.carried if c.initial in given_away})
    updates = updates_in_place(plan)
    held = _read_later(plan, updates)
    for i, results in updates.items():
        free = [(out, name) for n, (out, name) in results.items() if (i, i.inputs[n]) not in held]
        owner.update({i.outputs[out]: stored[name] for out, name in free})
    return owner


def _given_away(plan: Plan) -> set[Value]:
    """What instructions make for one loop alone, which begins with it, and may write over it."""
    uses = collections.Counter([*plan.fetches, *(c.value for c in plan.checks)])
    for instruction, _ in walk(plan.instructions):
        uses.update(used_directly(instruction))
    made = {
        v
        for i in plan.instructions
        if not isinstance(i, Feed | ReadVariable) and not (isinstance(i, Compute) and i.facts.is_view)
        for v in i.outputs
    }
    return {v for v in made if uses[v] == 1}


def _read_later(plan: Plan, updates: Mapping[Compute, Mapping[int, tuple[int, str]]]) -> set[tuple[Compute, Value]]:
    """Updates, and what they read of variables, where something else needs that then or afterwards."""
    needed: set[Value] = {*plan.fetches, *(c.value for c in plan.checks)}
    found: set[tuple[Compute, Value]] = set()
    for i in reversed(plan.instructions):
        updated = updates.get(i, {}) if isinstance(i, Compute) else {}
        needed.update(v for n, v in enumerate(i.inputs) if n not in updated)
        if isinstance(i, Compute):
            found.update((i, i.inputs[n]) for n in updated if i.inputs[n] in needed)
            if i.facts.is_view and i.outputs[0] in needed:
                needed.add(i.inputs[0])
    return found


def _freed(plan: Plan, owner: dict[Value, Value]) -> dict[int, list[Value]]:
    """By the position of an instruction, whose memory is free after it; what stays to the end is not there."""
    last: dict[Value, int] = {}
    made: dict[Value, int] = {}
    for position, i in enumerate(plan.instructions):
        for value in (*i.inputs, *i.outputs):
            last[owner[value]] = position
        for value in i.outputs:
            made.setdefault(owner[value], position)
    stored = stored_variables(plan)
    replaced = {stored[i.name]: owner[i.input] for i in plan.assignments} if not plan.checks else {}
    # An assignment waits for nothing but its value, wherever it stands.
    last |= {old: max(last.get(old, 0), made[new]) for old, new in replaced.items() if new in made}
    kept = {owner[v] for v in _kept(plan)} - {old for old, new in replaced.items() if new is not old}
    freed: dict[int, list[Value]] = {}
    for value, position in last.items():
        if value not in kept:
            freed.setdefault(position, []).append(value)
    return freed


def _kept(plan: Plan) -> Sequence[Value]:
    stored = [i.output for i in plan.instructions if isinstance(i, Feed | ReadVariable)]
    return [*stored, *plan.fetches, *(i.input for i in plan.assignments), *(c.value for c in plan.checks)]


def _allocated(instruction: Instruction, owner: dict[Value, Value]) -> list[Value]:
    if isinstance(instruction, Feed | ReadVariable):
        return []
    return [v for v in instruction.outputs if owner[v] is v]
