"""Fusion of weight updates: the elementwise chain before an assignment becomes one instruction.

Where XLA compiles the program, the chain reads and writes every weight once. Where TensorFlow runs it operation by
operation, the instruction says that the old value may go as soon as the new one is there.

For example, Adam of a weight [d_model:512 d_ff:2048] is a dozen kernels with three results: weight, m and v. They
become one instruction, which reads the gradient and three arrays and writes three. If nothing else needs the old
values, it writes into the variables' memory (`updates_in_place`). If the program has checks, it does so only when they
pass (`guards`).

A segment must not wait for itself. Suppose an update's result is gathered, and another update uses the gathered value.
These two updates must be two segments, with the collective between them. `_depths` tells them apart: it counts how
often a path to an instruction has left the elementwise work.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import networkx
import tensorflow as tf

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.local_work.work_facts import Kernel, WorkFacts
from meshtf.planning.plan import AssignVariable, Collective, Compute, Core, Instruction, Plan, Value

_FACTS = WorkFacts(is_update=True)
Step: TypeAlias = tuple[Kernel, tuple[int, ...]]
"""A kernel, and the numbers of its operands."""


def fuse_updates(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which each elementwise chain that leads to assignments is one instruction."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    chosen = _update_computes(plan, producers)
    used_by, names = consumers_of(plan), _names_read(plan)
    # A segment of one kernel is worth compiling only if it can then write to the variable that it reads.
    segments = [s for s in _segments(plan, producers, chosen) if len(s) > 1 or _assigned_in_place(s[0], names, used_by)]
    if not any(math.prod(_shape(segment[0])) >= options.smallest_fused_update for segment in segments):
        return plan
    fused: dict[Instruction, list[Compute]] = {c: segment for segment in segments for c in segment}
    replaced: dict[int, Compute] = {}
    checked = needed_by_checks(plan)
    for segment in segments:
        fusion = _fused(segment, used_by)
        is_in_place = _assigned_in_place(fusion, names, _outside(segment, used_by))
        if plan.checks and checked.isdisjoint(segment) and is_in_place:
            fusion = _guarded(fusion, plan)
        replaced[id(segment)] = fusion
    instructions = [replaced[id(fused[i])] if i in fused else i for i in plan.instructions if _is_kept(i, fused)]
    return dataclasses.replace(plan, instructions=tuple(in_order(instructions)))


def _outside(
    segment: Sequence[Compute], used_by: Mapping[Value, list[Instruction | None]]
) -> Mapping[Value, list[Instruction | None]]:
    """Returns the readers of each value of a segment, without the segment itself."""
    members = set(segment)
    return {v: [i for i in used_by.get(v, []) if i not in members] for c in segment for v in c.outputs}


def _is_kept(instruction: Instruction, fused: Mapping[Instruction, list[Compute]]) -> bool:
    """Tells whether the instruction stays: one instruction of each segment stands for all of it."""
    return instruction not in fused or fused[instruction][0] is instruction


def _is_elementwise(instruction: Instruction) -> bool:
    if not isinstance(instruction, Compute) or instruction.facts.kernel is None or len(instruction.outputs) != 1:
        return False
    (output,) = instruction.outputs
    alike = all(v.slice_shape in ((), output.slice_shape) and _order(v, output) for v in instruction.inputs)
    return alike and output.slice_shape != ()


def _order(value: Value, output: Value) -> bool:
    """Tells whether a value's dimensions stand in the output's order, so that the kernel includes no transpose."""
    return not value.shape.dims or value.shape == output.shape


def _update_computes(plan: Plan, producers: Mapping[Value, Instruction]) -> set[Compute]:
    """Returns the elementwise work that leads to assignments, directly or through collectives."""
    chosen: set[Compute] = set()
    waiting = [i.input for i in plan.assignments]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        producer = producers.get(value)
        if isinstance(producer, Collective):
            waiting.append(producer.input)
        elif isinstance(producer, Compute) and _is_elementwise(producer):
            chosen.add(producer)
            waiting.extend(producer.inputs)
    return chosen


def _segments(plan: Plan, producers: Mapping[Value, Instruction], chosen: set[Compute]) -> Iterable[list[Compute]]:
    """Yields connected instructions, in segments that no path between two members leaves."""
    depth = _depths(plan, producers, chosen)
    ties = networkx.Graph()
    ties.add_nodes_from(i for i in plan.instructions if i in chosen)
    for instruction in ties.nodes:
        before = [p for v in instruction.inputs if (p := producers[v]) in chosen]
        ties.add_edges_from(
            (instruction, p) for p in before if depth[p] == depth[instruction] and _shape(p) == _shape(instruction)
        )
    order = {instruction: n for n, instruction in enumerate(plan.instructions)}
    for component in networkx.connected_components(ties):
        yield sorted(component, key=order.__getitem__)


def _depths(plan: Plan, producers: Mapping[Value, Instruction], chosen: set[Compute]) -> dict[Instruction, int]:
    """Returns how often a path to each instruction leaves the chosen ones.

    A chosen instruction gets the largest number that its readers allow, so that it stands beside them.
    """
    depth: dict[Instruction, int] = {}
    after: dict[Instruction, list[Instruction]] = {}
    for instruction in plan.instructions:
        before = [producers[v] for v in instruction.inputs]
        depth[instruction] = max((depth[p] + (instruction not in chosen and p in chosen) for p in before), default=0)
        for p in before:
            after.setdefault(p, []).append(instruction)
    for instruction in reversed(plan.instructions):
        if instruction in chosen:
            following = (depth[c] - (c not in chosen) for c in after.get(instruction, []))
            depth[instruction] = min(following, default=depth[instruction])
    return depth


def _shape(instruction: Instruction) -> tuple[int, ...]:
    return instruction.outputs[0].slice_shape


def consumers_of(plan: Plan) -> dict[Value, list[Instruction | None]]:
    """Returns the instructions that read each value, with None for a fetch and for a check."""
    consumers: dict[Value, list[Instruction | None]] = {}
    for instruction in plan.instructions:
        for value in instruction.inputs:
            consumers.setdefault(value, []).append(instruction)
    for value in (*plan.fetches, *(c.value for c in plan.checks)):
        consumers.setdefault(value, []).append(None)
    return consumers


def _fused(segment: list[Compute], consumers: Mapping[Value, list[Instruction | None]]) -> Compute:
    members = set(segment)
    made = {c.outputs[0] for c in segment}
    inputs = list(dict.fromkeys(v for c in segment for v in c.inputs if v not in made))
    outputs = [v for c in segment for v in c.outputs if any(i not in members for i in consumers.get(v, []))]
    numbers = {v: n for n, v in enumerate([*inputs, *(c.outputs[0] for c in segment)])}
    steps = [(_kernel_of(c), tuple(numbers[v] for v in c.inputs)) for c in segment]
    emit = FusedUpdate(steps, [numbers[v] for v in outputs], len(inputs))
    flops = sum(c.flops for c in segment)
    return Compute(segment[-1].operation, "fused update", tuple(inputs), tuple(outputs), emit, flops, _FACTS)


def needed_by_checks(plan: Plan) -> set[Instruction]:
    """Returns the instructions on which some check depends."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    found: set[Instruction] = set()
    waiting = [c.value for c in plan.checks]
    while waiting:
        producer = producers[waiting.pop()]
        if producer not in found:
            found.add(producer)
            waiting.extend(producer.inputs)
    return found


def _guarded(fusion: Compute, plan: Plan) -> Compute:
    """The update with the program's checks as inputs, so that it may write to variables in place."""
    assert isinstance(fusion.emit, FusedUpdate)
    guards = tuple(dict.fromkeys(c.value for c in plan.checks))
    emit = dataclasses.replace(fusion.emit, guards=len(guards))
    return dataclasses.replace(fusion, inputs=(*fusion.inputs, *guards), emit=emit)


def _kernel_of(compute: Compute) -> Kernel:
    assert compute.facts.kernel is not None  # only elementwise work is fused
    return compute.facts.kernel


@dataclasses.dataclass(frozen=True, eq=False)
class FusedUpdate:
    """A chain of elementwise kernels as one `Emit`. A compiler makes one loop of it.

    Attributes:
      steps: kernels in order, each with the numbers of its operands. Inputs are counted first, then steps.
      results: the numbers of the steps whose results are outputs.
      num_inputs: how many slices it receives before its guards.
      guards: how many booleans follow them. Unless all are true, variables keep their values.
    """

    steps: Sequence[Step]
    results: Sequence[int]
    num_inputs: int
    guards: int = 0

    def __call__(self, core: Core, *slices: tf.Tensor) -> list[tf.Tensor]:
        values = list(slices[: self.num_inputs])
        for kernel, operands in self.steps:
            values.append(kernel(*(values[n] for n in operands)))
        return [values[n] for n in self.results]


def updates_in_place(plan: Plan) -> dict[Compute, dict[int, tuple[int, str]]]:
    """Returns the fused updates, and updates of rows, that may write to the variables that they read.

    Each has, by the number of an input, the number of the result and the variable's name. An update is left out if a
    failed check would have to undo it.
    """
    emits = (FusedUpdate, RowUpdate)
    fused = [(i, i.emit) for i in plan.instructions if isinstance(i, Compute) and isinstance(i.emit, emits)]
    if not fused:
        return {}
    consumers, names = consumers_of(plan), _names_read(plan)
    found: dict[Compute, dict[int, tuple[int, str]]] = {}
    for instruction, emit in fused:
        pairs = _assigned_in_place(instruction, names, consumers)
        if pairs and (emit.guards or not plan.checks):
            found[instruction] = pairs
    return found


def _names_read(plan: Plan) -> dict[Value, str]:
    return {i.output: i.name for i in plan.reads}


def _assigned_in_place(
    fusion: Compute, names: Mapping[Value, str], consumers: Mapping[Value, list[Instruction | None]]
) -> dict[int, tuple[int, str]]:
    """Returns the results that only the assignment of a variable read here needs, as in `updates_in_place`."""
    inputs = {names[v]: n for n, v in enumerate(fusion.inputs) if v in names}
    found: dict[int, tuple[int, str]] = {}
    for n, value in enumerate(fusion.outputs):
        users = consumers.get(value, [])
        if len(users) == 1 and isinstance(users[0], AssignVariable) and users[0].name in inputs:
            found[inputs[users[0].name]] = (n, users[0].name)
    return found


def in_order(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Returns a topological order that keeps the program's order where it can.

    An instruction that comes before some of its inputs moves after the last of them. If another instruction needs it
    earlier, its inputs move up instead. Nothing else moves: a zero for a far loop takes no memory before that loop
    needs it.
    """
    order = _DemandedOrder(instructions)
    # Assignments take effect as the program ends, even if variables are read later: they keep their place at the end.
    for instruction in sorted(instructions, key=lambda i: isinstance(i, AssignVariable)):
        order.add(instruction)
    return order.instructions


class _DemandedOrder:
    """A new order of instructions, to which they are added in their old order."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions: list[Instruction] = []
        self._places = {instruction: n for n, instruction in enumerate(instructions)}
        self._producers = {v: i for i in instructions for v in i.outputs}
        self._done: set[Instruction] = set()
        self._waiting: dict[Instruction, list[Instruction]] = {}

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction with everything that it needs, or lets it wait for inputs that come later."""
        stack = [(instruction, False)]  # the next one is last; the flag: whether another one needs it
        while stack:
            each, is_needed = stack.pop()
            if each in self._done:
                continue
            missing = sorted(self._missing(each), key=self._places.__getitem__)
            if not missing:
                self._done.add(each)
                self.instructions.append(each)
                stack += [(waiting, False) for waiting in reversed(self._waiting.pop(each, []))]
            elif is_needed or self._places[missing[0]] < self._places[each]:
                stack += [(each, True), *((needed, True) for needed in reversed(missing))]
            else:
                self._waiting.setdefault(missing[-1], []).append(each)

    def _missing(self, instruction: Instruction) -> set[Instruction]:
        return {p for v in instruction.inputs if (p := self._producers[v]) not in self._done}
