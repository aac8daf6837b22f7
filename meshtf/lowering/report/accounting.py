"""The costs of a plan for one core: memory, FLOPs, bytes sent, and work that other cores do as well.

They are counted from the plan alone. For memory, the count of live bytes grows where a value is made and shrinks after
its last use. Take (a = x + 1, b = a * 2, c = b - x), where x is a variable and each value has 4 bytes. The count is 8
while a is made, with x and a. It is 12 while b is made, with x, a and b. It stays 12 while c is made, since a is free
by then. The peak is 12.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.layout import Axes, axes_size
from meshtf.lowering.passes.updates.early_updates import is_part_of_update
from meshtf.lowering.passes.updates.update_fusion import updates_in_place
from meshtf.lowering.report._execution_orders import collectives_early, collectives_late
from meshtf.planning.core_positions import groups_over
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
from meshtf.planning.process_spans import crossing_axes, span_of


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
    """Bytes of one core beside variables and feeds.

    gradients: the most that gradients, and the values that updates make from them, need at once. activations: the most
    that everything else needs at once. The two times may differ.
    """

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


def memory(plan: Plan) -> tuple[PeakMemory, WorkingMemory]:
    """Returns `peak_memory` and `working_memory` together, which costs less than calling both."""
    moments = _moments_of_orders(plan)
    return _peak(plan, moments), _working(plan, moments)


def peak_memory(plan: Plan) -> PeakMemory:
    """Returns the most memory that one core needs at once, in bytes.

    The instructions are taken in the order of the plan. If the plan has collectives, two more orders are tried, since
    other cores may be slow or fast: every collective as late, or as early, as it can be. The result is the largest of
    the three.

    Counted:
    - the slices of all variables and the arrays fed, from beginning to end; fetches to the end;
    - every value, from the instruction that makes it to the last one that uses it;
    - the inputs and outputs of an instruction together;
    - the bytes that collectives receive and put in order.

    These values take no memory of their own:
    - A new value of a variable takes the place of the old one as soon as nothing needs either. If checks decide whether
      it does, this happens at the end. A fused update in place needs no memory, if nothing else needs the variable any
      more.
    - A loop writes its stacks where they stay. It writes carried values over the initial value, if nothing else needs
      that. A sum is written over as its parts are added.
    - A view (a reshape, a variable as it is read) takes nothing, but keeps the memory that it shows.

    Not counted: scratch memory of a kernel; the memory that the runtime and its allocators hold; on GPUs a second copy
    of stacks that others read whole; and the memory that TensorFlow saves elsewhere by writing an output over an input.
    TensorFlow may also execute independent local work in another order.
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
    """Returns the largest values in a core's memory at the peak of `peak_memory`, each with its operation or
    variable.
    """
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
    """Returns the most memory of gradients, and of activations, counted as in `peak_memory`."""
    return _working(plan, _moments_of_orders(plan))


def _working(plan: Plan, moments: Sequence[Sequence[Moment]]) -> WorkingMemory:
    standing = variable_bytes(plan) + sum(f.output.slice_bytes for f in plan.feeds)
    activations = max((m.total - m.gradients - standing for own in moments for m in own), default=0)
    return WorkingMemory(max((m.gradients for own in moments for m in own), default=0), max(activations, 0))


def _orders(plan: Plan) -> list[Plan]:
    """Returns the plan with its instructions in each order to be tried."""
    if not plan.collectives:
        return [plan]
    orders = (plan.instructions, collectives_late(plan), collectives_early(plan))
    return [dataclasses.replace(plan, instructions=tuple(order)) for order in orders]


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """Memory while an instruction runs: all memory in use, the gradients' part, and the part that ends with the
    instruction.
    """

    total: int
    gradients: int
    temporary: int
    operation: Operation


def moments(plan: Plan) -> list[Moment]:
    """Returns one moment for each instruction outside of loops and branches, in the plan's order."""
    return list(_moments(plan, *_facts_of_every_order(plan)))


def _moments_of_orders(plan: Plan) -> list[list[Moment]]:
    facts = _facts_of_every_order(plan)
    return [list(_moments(order, *facts)) for order in _orders(plan)]


def _facts_of_every_order(plan: Plan) -> tuple[set[Value], set[Value], _Space]:
    """Returns the facts that do not depend on the order of instructions: gradients, variables, and space of
    instructions.
    """
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
        # When the old value is freed, the new value becomes the variable's and is no longer a gradient.
        live_gradients -= sum(v.slice_bytes for v in freed.get(position, ()) if v in gradients or v in stored)


def gradient_values(plan: Plan) -> set[Value]:
    """Returns the gradients of assigned weights, as terms, sums and slices, and the values that updates make
    from them.
    """
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
    """Returns the lists of instructions nested in one, each with the values that it is given."""
    if isinstance(instruction, Loop):
        # A carried value enters an iteration in the memory that its result has after the last one.
        return [(instruction.body, [s.part for s in instruction.sliced])]
    if isinstance(instruction, Branch):
        return [(instruction.if_true, ()), (instruction.if_false, ())]
    return []


@dataclasses.dataclass(frozen=True, slots=True)
class _Space:
    """The memory that instructions take beside their inputs and outputs."""

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
        """Returns the most memory that one iteration needs at once beside the memory outside. `added` begins
        with outside values.
        """
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
    """Returns the values inside a loop that are written over a carried value, each with that value.

    They are next values of carried ones, made element by element or by adding to parts, here or in a loop inside.
    Nothing else may need the present value.
    """
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


def memory_owners(plan: Plan) -> dict[Value, Value]:
    """Returns, for each value, the one whose memory it is in: the value itself, or the value that it is a view of."""
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
    """Returns the values that only one instruction uses. A loop that begins with such a value may write over it."""
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
    """Returns updates, each with a variable's value that something else still needs at that time."""
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
    """Returns the values whose memory is free after an instruction, by its position. Values that stay are not
    among them.
    """
    last: dict[Value, int] = {}
    made: dict[Value, int] = {}
    for position, i in enumerate(plan.instructions):
        for value in (*i.inputs, *i.outputs):
            last[owner[value]] = position
        for value in i.outputs:
            made.setdefault(owner[value], position)
    stored = stored_variables(plan)
    replaced = {stored[i.name]: owner[i.input] for i in plan.assignments} if not plan.checks else {}
    # An assignment waits only for its value, wherever it stands.
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
