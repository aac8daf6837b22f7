"""The memory that one core needs, counted from the plan alone.

The count of live bytes grows where a value is made and shrinks after its last use. Take (a = x + 1, b = a * 2,
c = b - x), where x is a variable and each value has 4 bytes. The count is 8 while a is made, with x and a. It is 12
while b is made, with x, a and b. It stays 12 while c is made, since a is free by then. The peak is 12.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.lowering.passes.updates.early_updates import is_part_of_update
from meshtf.lowering.report.accounting import stored_variables, variable_bytes
from meshtf.lowering.report.memory._execution_orders import collectives_early, collectives_late
from meshtf.lowering.report.memory.memory_owners import allocated_values, freed_values, memory_owners
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


@dataclasses.dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory that one core needs at once, in bytes, and the operation that runs at that time.

    total: all of it. variables, feeds: the parts that exist during the whole program.
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


def peak_and_working_memory(plan: Plan) -> tuple[PeakMemory, WorkingMemory]:
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
    freed, live = freed_values(order, owner), dict(names)
    for position, instruction in enumerate(order.instructions[: peak + 1]):
        made = instruction.outputs if isinstance(instruction, Feed) else allocated_values(instruction, owner)
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
    freed = freed_values(plan, owner)
    live = variable_bytes(plan) + sum(f.output.slice_bytes for f in plan.feeds)
    live_gradients = 0
    for position, instruction in enumerate(plan.instructions):
        made = allocated_values(instruction, owner)
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
        condition = () if instruction.condition is None else instruction.condition.instructions
        return [(instruction.body, [s.part for s in instruction.sliced]), (condition, ())]
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
        # First: in whose memory each value lies, and the last instruction that reads or writes there.
        owner = {v: v for v in bound}
        last: dict[Value, int] = {}
        for position, i in enumerate(body):
            is_view = isinstance(i, Compute) and i.facts.is_view
            shown = {v: i.inputs[0] if is_view else added.get(v, v) for v in i.outputs}
            owner.update({v: owner.get(own, own) for v, own in shown.items()})
            last.update({owner.get(v, v): position for v in (*i.inputs, *i.outputs)})
        # Then: how much lives at each instruction. Memory from outside is counted outside.
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
