"""Fusion of weight updates: the elementwise chain before an assignment becomes one local segment, compiled by XLA.

An optimizer has a dozen elementwise operations. Run one by one, they read and write every weight a dozen times.
Compiled, they do so once. Segments of the same structure and shapes share one compiled function. The rest of a program
is not compiled: on CPUs TensorFlow's kernels for products are faster than XLA's.

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
import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import networkx
import tensorflow as tf

from meshtf.lowering.passes.elementwise_chain import ElementwiseChain
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.training_kernels import TrainingKernel, training_kernel
from meshtf.lowering.passes.update_arithmetic import UpdateArithmetic
from meshtf.lowering.passes.update_in_blocks import Blocks, BlockSizes, Step, UpdateInBlocks
from meshtf.planning.plan import AssignVariable, Collective, Compute, Core, Instruction, Plan, Value
from meshtf.planning.work_facts import Kernel, WorkFacts

_FACTS = WorkFacts(is_update=True)
_MOST_STEPS_UNCOMPILED, _MOST_ELEMENTS_UNCOMPILED = 8, 1 << 12
"""The longest chain that runs kernel by kernel on processors, and its largest slice. It takes 8 to 12 us on an EPYC,
and a call of a compiled function takes 13. With twice as many elements the two take equally long."""


def fuse_updates(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which the elementwise chains that lead to assignments are compiled segments."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    chosen = _update_computes(plan, producers)
    used_by, names = consumers_of(plan), _names_read(plan)
    # A segment of one kernel is worth compiling only if it can then write to the variable that it reads.
    segments = [s for s in _segments(plan, producers, chosen) if len(s) > 1 or _assigned_in_place(s[0], names, used_by)]
    if not any(math.prod(_shape(segment[0])) >= options.smallest_fused_update for segment in segments):
        return plan
    compiled = _Compiled(options.block_sizes)
    fused: dict[Instruction, list[Compute]] = {c: segment for segment in segments for c in segment}
    replaced: dict[int, Compute] = {}
    checked = _needed_by_checks(plan, producers)
    for segment in segments:
        fusion = _fused(segment, used_by, compiled)
        is_in_place = _assigned_in_place(fusion, names, _outside(segment, used_by))
        if plan.checks and checked.isdisjoint(segment) and is_in_place:
            fusion = _guarded(fusion, plan, compiled)
        replaced[id(segment)] = fusion
    instructions = [replaced[id(fused[i])] if i in fused else i for i in plan.instructions if _is_kept(i, fused)]
    return dataclasses.replace(plan, instructions=tuple(_ordered(instructions)))


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


def _fused(
    segment: list[Compute],
    consumers: Mapping[Value, list[Instruction | None]],
    compiled: _Compiled,
) -> Compute:
    members = set(segment)
    made = {c.outputs[0] for c in segment}
    inputs = list(dict.fromkeys(v for c in segment for v in c.inputs if v not in made))
    outputs = [v for c in segment for v in c.outputs if any(i not in members for i in consumers.get(v, []))]
    numbers = {v: n for n, v in enumerate([*inputs, *(c.outputs[0] for c in segment)])}
    steps = tuple((_kernel_of(c), tuple(numbers[v] for v in c.inputs)) for c in segment)
    results = tuple(numbers[v] for v in outputs)
    specs = tuple((v.slice_shape, v.dtype) for v in inputs)
    emit = compiled.update(steps, results, specs)
    flops = sum(c.flops for c in segment)
    return Compute(segment[-1].operation, "fused update", tuple(inputs), tuple(outputs), emit, flops, _FACTS)


def _needed_by_checks(plan: Plan, producers: Mapping[Value, Instruction]) -> set[Instruction]:
    found: set[Instruction] = set()
    waiting = [c.value for c in plan.checks]
    while waiting:
        producer = producers[waiting.pop()]
        if producer not in found:
            found.add(producer)
            waiting.extend(producer.inputs)
    return found


def _guarded(fusion: Compute, plan: Plan, compiled: _Compiled) -> Compute:
    """Returns the update behind the program's checks. Then it may write to variables in their memory."""
    assert isinstance(fusion.emit, FusedUpdate)
    guards = tuple(dict.fromkeys(c.value for c in plan.checks))
    emit = compiled.guarded(fusion.emit, len(guards))
    return dataclasses.replace(fusion, inputs=(*fusion.inputs, *guards), emit=emit)


def _kernel_of(compute: Compute) -> Kernel:
    assert compute.facts.kernel is not None  # elementwise, as all that is fused
    return compute.facts.kernel


class _Compiled:
    """A cache: one `FusedUpdate` for all segments of the same steps and shapes."""

    def __init__(self, block_sizes: BlockSizes) -> None:
        self._block_sizes = block_sizes
        self._chains: dict[Hashable, ElementwiseChain] = {}
        self._updates: dict[Hashable, FusedUpdate] = {}

    def update(
        self, steps: Sequence[Step], results: Sequence[int], inputs: Sequence[tuple[tuple[int, ...], tf.DType]]
    ) -> FusedUpdate:
        chain = self._chains.setdefault((steps, results), ElementwiseChain(steps, results))
        return self._updates.setdefault((chain, inputs), FusedUpdate(chain, inputs, self._block_sizes))

    def guarded(self, update: FusedUpdate, guards: int) -> FusedUpdate:
        return self._updates.setdefault((id(update), guards), update.guarded(guards))


class FusedUpdate:
    """A chain of elementwise kernels, compiled.

    As an `Emit` it returns its results. With `in_place` it writes them into the memory of variables.
    """

    def __init__(
        self,
        chain: ElementwiseChain,
        inputs: Sequence[tuple[tuple[int, ...], tf.DType]],
        block_sizes: BlockSizes,
        guards: int = 0,
    ) -> None:
        self._chain = chain
        self.inputs = inputs
        """Shape and dtype of each input."""
        self._block_sizes = block_sizes
        self.guards = guards
        """How many booleans follow the inputs: unless all are true, variables keep their values."""
        self._functions: dict[Hashable, Callable[..., Sequence[tf.Tensor]]] = {}
        self._kernels: dict[Hashable, TrainingKernel | None] = {}

    def guarded(self, guards: int) -> FusedUpdate:
        """Returns the same update behind `guards` checks."""
        return FusedUpdate(self._chain, self.inputs, self._block_sizes, guards)

    def __call__(self, core: Core, *slices: tf.Tensor) -> Sequence[tf.Tensor]:
        return self._chain(*slices[: len(self.inputs)])

    def flat(self, *slices: tf.Tensor) -> Sequence[tf.Tensor]:
        """Returns the same results, from a function that updates of other shapes with as many elements share."""
        return self._chain.flat(*slices[: len(self.inputs)])

    def training_kernel(self, assigned: Mapping[int, int]) -> TrainingKernel | None:
        """Returns the kernel that does the same on a CPU without compilation, or None.

        One result may be left unassigned, such as a part of a weight that is gathered afterwards. Then the kernel has
        one more variable, which begins with the input of that number.

        assigned: as in `assigning`.
        """
        pairs = tuple(assigned.items())
        if pairs not in self._kernels:
            choices = (self._kernel_for(variables) for variables in self._variables_of_kernels(assigned))
            self._kernels[pairs] = next((kernel for kernel in choices if kernel is not None), None)
        return self._kernels[pairs]

    def _kernel_for(self, variables: Mapping[int, int]) -> TrainingKernel | None:
        dtypes = {self.inputs[n][1] for n in variables}
        new = {n: self._chain.results[result] for n, result in variables.items()}
        arithmetic = UpdateArithmetic(self.inputs, self._chain.steps, new)
        return training_kernel(arithmetic, dtypes.pop()) if len(dtypes) == 1 else None

    def _variables_of_kernels(self, assigned: Mapping[int, int]) -> Iterable[Mapping[int, int]]:
        """Yields ways to assign all results, by the number of the input that a kernel would have as a variable."""
        left = set(range(len(self._chain.results))) - set(assigned.values())
        if not left:
            yield assigned
        elif len(left) == 1:
            others = (n for n, (shape, _) in enumerate(self.inputs) if n not in assigned and shape)
            yield from ({**assigned, n: min(left)} for n in others)

    @property
    def is_compiled(self) -> bool:
        """Whether compiling it pays. To call a compiled function takes as long as to start a few kernels, and
        compiling it takes longer than many steps.
        """
        elements = max(math.prod(shape) for shape, _ in self.inputs)
        return len(self._chain.steps) > _MOST_STEPS_UNCOMPILED or elements > _MOST_ELEMENTS_UNCOMPILED

    def in_place(
        self, variables: Mapping[int, tuple[int, tf.Tensor]], slices: Sequence[tf.Tensor], *, on_processors: bool
    ) -> dict[int, tf.Tensor]:
        """Assigns some results to the variables that some inputs are read from, and returns the other results.

        Reads and assignments are inside the compiled function, which then writes to the memory that it reads.

        Args:
          variables: by the number of an input, the number of the result to assign, and the variable's handle.
          slices: the other inputs, in order, and the guards.
          on_processors: whether it runs on processors with caches. There a large update is done in blocks, and a small
            one kernel by kernel.

        Returns:
          The other results, by number.
        """
        pairs = {n: result for n, (result, _) in variables.items()}
        others = [n for n in range(len(self._chain.results)) if n not in pairs.values()]
        handles = [handle for _, handle in variables.values()]
        if on_processors and not self.is_compiled:
            results: Sequence[tf.Tensor] = self._run_in_place(tuple(pairs.items()), None, handles, slices)
        else:
            results = self.assigning(pairs, in_blocks=on_processors)(handles, list(slices))
        return dict(zip(others, results, strict=True))

    def assigning(self, assigned: Mapping[int, int], *, in_blocks: bool) -> Callable[..., Sequence[tf.Tensor]]:
        """Returns the compiled function of `in_place`, which takes the variables' handles, the other slices and the
        guards.

        assigned: by the number of an input that is read from a variable, the number of the result that the variable
        gets.
        """
        pairs = tuple(assigned.items())
        if (pairs, in_blocks) not in self._functions:
            run = functools.partial(self._run_in_place, pairs, self._in_blocks(pairs) if in_blocks else None)
            own = [tf.TensorSpec(shape, dtype) for n, (shape, dtype) in enumerate(self.inputs) if n not in assigned]
            own += [tf.TensorSpec([], tf.bool)] * self.guards
            # Without a signature, each new variable's handle would cause another trace.
            signature = ([tf.TensorSpec([], tf.resource)] * len(pairs), own)
            self._functions[pairs, in_blocks] = tf.function(run, signature, jit_compile=True, autograph=False)
        return self._functions[pairs, in_blocks]

    def _in_blocks(self, pairs: Sequence[tuple[int, int]]) -> UpdateInBlocks | None:
        if len(pairs) < len(self._chain.results):
            return None
        written = {n: self._chain.results[result] for n, result in pairs}
        blocks = Blocks.of(self.inputs[pairs[0][0]][0], self._block_sizes)
        return blocks and UpdateInBlocks.of(self._chain.steps, len(self.inputs), written, blocks)

    def _run_in_place(
        self,
        pairs: Sequence[tuple[int, int]],
        blocks: UpdateInBlocks | None,
        handles: Sequence[tf.Tensor],
        slices: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        read = {n: self._read(n, handle) for (n, _), handle in zip(pairs, handles, strict=True)}
        given = iter(slices)
        inputs = [read[n] if n in read else next(given) for n in range(len(self.inputs))]
        guards = list(given)
        is_kept = tf.reduce_all(guards) if guards else None
        if blocks is not None:
            others, new = [], blocks.run(inputs, is_kept)
        else:
            results = self._chain.values(*inputs)
            others = [y for n, y in enumerate(results) if n not in dict(pairs).values()]
            new = {n: results[k] if is_kept is None else tf.where(is_kept, results[k], read[n]) for n, k in pairs}
        for (n, _), handle in zip(pairs, handles, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=new[n])
        return others

    def _read(self, number: int, handle: tf.Tensor) -> tf.Tensor:
        shape, dtype = self.inputs[number]
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
        value.set_shape(shape)
        return value


def updates_in_place(plan: Plan) -> dict[Compute, dict[int, tuple[int, str]]]:
    """Returns the fused updates that may write to the variables that they read.

    Each has, by the number of an input, the number of the result and the variable's name. An update is left out if a
    failed check would have to undo it.
    """
    consumers, names = consumers_of(plan), _names_read(plan)
    found: dict[Compute, dict[int, tuple[int, str]]] = {}
    for instruction in plan.instructions:
        if isinstance(instruction, Compute) and isinstance(instruction.emit, FusedUpdate):
            pairs = _assigned_in_place(instruction, names, consumers)
            if pairs and (instruction.emit.guards or not plan.checks):
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


def _ordered(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Returns a topological order that keeps the program's order where it can."""
    producers = {v: i for i in instructions for v in i.outputs}
    graph = networkx.DiGraph()
    graph.add_nodes_from(instructions)
    graph.add_edges_from((producers[v], i) for i in instructions for v in i.inputs)
    order = {instruction: n for n, instruction in enumerate(instructions)}
    # Assignments take effect as the program ends, even if variables are read later: they keep their place at the end.
    return list(
        networkx.lexicographical_topological_sort(graph, key=lambda i: (isinstance(i, AssignVariable), order[i]))
    )
