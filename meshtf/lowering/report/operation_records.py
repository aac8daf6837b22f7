"""The work of each instruction of a plan on one core: its FLOPs, its bytes, and what it waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import tensorflow as tf

from meshtf.layout import Axes
from meshtf.lowering.passes.updates.early_updates import before_assignments
from meshtf.lowering.report import accounting
from meshtf.lowering.report._fusion_chains import FusedWork, fused_work
from meshtf.lowering.report.memory.peak_memory import moments
from meshtf.ops.elementwise.activations import ELU, SELU
from meshtf.ops.elementwise.exact_gelu import EXACT_GELU, EXACT_GELU_GRADIENT
from meshtf.ops.elementwise.gated_by_itself import GELU, SWISH, GatedGradientKernel, GatedKernel
from meshtf.ops.slicewise.kernel_function import EmittedFunction, KernelFunction
from meshtf.planning.local_work.wide_kernel import WideKernel
from meshtf.planning.local_work.work_facts import MatrixProduct
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Collective,
    Compute,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
    nested,
    walk,
)
from meshtf.planning.process_spans import crossing_axes

Category: TypeAlias = Literal["product", "elementwise", "reduction", "other", "view", "collective", "loop", "branch"]

_TRANSCENDENTAL = frozenset(
    [
        tf.exp, tf.math.expm1, tf.math.log, tf.math.log1p, tf.pow, tf.sin, tf.cos, tf.tanh, tf.sigmoid, tf.math.erf,
        WideKernel(tf.math.softplus), ELU, SELU, EXACT_GELU, EXACT_GELU_GRADIENT,
        *(WideKernel(kernel(gate)) for gate in (SWISH, GELU) for kernel in (GatedKernel, GatedGradientKernel)),
    ]
)  # fmt: skip
"""Kernels that take tens of operations for each element on a processor without a vector unit for them."""

_NOTHING = FusedWork(-1, 1, 0, 0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryMoment:
    """Bytes of one core while an operation runs, by kind, in the plan's own order.

    Attributes:
      operation: number of its record.
      weights: variables that are trained.
      slots: all other variables, above all the state of optimizers.
      feeds: arrays fed.
      gradients: gradients, and the values that updates make from them.
      activations: all other values that are there before or after.
      temporary: memory that is only there while it runs: inside of a loop, or for what a collective puts in order.
    """

    operation: int
    weights: int
    slots: int
    feeds: int
    gradients: int
    activations: int
    temporary: int

    @property
    def total(self) -> int:
        return self.weights + self.slots + self.feeds + self.gradients + self.activations + self.temporary


def memory_moments(plan: Plan, trained: Collection[str]) -> list[MemoryMoment]:
    """Returns one moment for each instruction outside of loops and branches. `trained`: names of the weights."""
    stored = accounting.stored_variables(plan)
    weights = sum(value.slice_bytes for name, value in stored.items() if name in trained)
    slots = sum(value.slice_bytes for value in stored.values()) - weights
    feeds = sum(f.output.slice_bytes for f in plan.feeds)
    numbers = _numbers(plan.instructions)
    return [
        MemoryMoment(
            operation=numbers[instruction],
            weights=weights,
            slots=slots,
            feeds=feeds,
            gradients=max(moment.gradients, 0),
            activations=max(moment.total - moment.temporary - moment.gradients - weights - slots - feeds, 0),
            temporary=moment.temporary,
        )
        for instruction, moment in zip(plan.instructions, moments(plan), strict=True)
        if instruction in numbers
    ]


def _numbers(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """Returns the numbers of the records of the instructions in one list."""
    numbers, count = {}, 0
    for instruction in instructions:
        if not isinstance(instruction, Feed | ReadVariable | AssignVariable):
            numbers[instruction] = count
            count += 1 + sum(1 for _ in walk(nested(instruction)))
    return numbers


@dataclasses.dataclass(frozen=True, slots=True)
class OperationRecord:
    """One instruction of the program, as each core does it once. In loops it runs `times` times.

    Attributes:
      name, kind: the name of the operation, and the part of it that this instruction does.
      category: the category of its work, by which reports and machine descriptions sort it.
      label: the operation as people read it: see `mtf.Operation.label`.
      filename, line, function: the operation's line: the user's, or that of a built-in layer.
      is_gradient: whether it is part of the gradient of what that line makes.
      times: how often it runs, in loops.
      flops: 2*m*n*k for a product of matrices, one per element of other work.
      bytes_read, bytes_written: bytes of its inputs and its outputs.
      dtype: the dtype of its first input, or of its output if it has none.
      products: the matrix products that it does.
      chain: number of the chain of work that a compiler can do in one pass over memory; -1 for none.
      chain_length: how many operations the chain has.
      fused_bytes_read, fused_bytes_written: its share of the bytes that the pass reads and writes.
      bytes_beside_products: its share of both if products are kernels of their own, as on a GPU.
      is_update: whether it only makes the next values of variables.
      transcendentals: exponentials, logarithms, sines and the like that are among its FLOPs.
      has_kernel: whether some platform has a kernel of its own for it.
      draws_random_bits: whether it makes some hundred integer operations for each element.
      needs: numbers of the records that make its inputs, in the same list of instructions.
      inside: number of the record of the loop or branch that it is in; -1 for none.
      alternative: in a branch, 0 if it runs where the predicate holds, and 1 if it runs where it does not.
      bubble: in a pipeline's loop, the share of its iterations' work that is useless.
      axes: for a collective, the mesh axes along which data moves.
      process_axes: the axes among `axes` that cross processes.
      slice_bytes: for a collective, bytes of a core's input slice.
      bytes_sent: for a collective, bytes that a core sends.
      destinations: if a collective moves slices to other cores one by one, the core to which each core's slice goes.
    """

    name: str
    kind: str
    category: Category
    filename: str
    line: int
    function: str
    times: int
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dtype: str = ""
    products: tuple[MatrixProduct, ...] = ()
    chain: int = -1
    chain_length: int = 1
    fused_bytes_read: int = 0
    fused_bytes_written: int = 0
    bytes_beside_products: int = 0
    is_update: bool = False
    transcendentals: int = 0
    has_kernel: bool = False
    draws_random_bits: bool = False
    needs: tuple[int, ...] = ()
    inside: int = -1
    alternative: int = 0
    bubble: float = 0.0
    axes: Axes = ()
    process_axes: Axes = ()
    slice_bytes: int = 0
    bytes_sent: int = 0
    destinations: tuple[int, ...] = ()
    label: str = ""
    is_gradient: bool = False


def operation_records(plan: Plan) -> list[OperationRecord]:
    """Returns the records in the plan's order, where the inside of a loop or branch follows it.

    Axes are those of the plan, and may be parts of mesh axes.
    """
    return _Records(plan).records


class _Records:
    def __init__(self, plan: Plan) -> None:
        self.records: list[OperationRecord] = []
        self._plan, self._fused = plan, fused_work(plan)
        self._updates = {i for i in before_assignments(plan) if isinstance(i, Compute)}
        self._crossing: dict[Axes, Axes] = {}
        self._add_all(plan.instructions, 1, -1, 0)

    def _add_all(self, instructions: Sequence[Instruction], times: int, inside: int, alternative: int) -> None:
        makers: dict[Value, int] = {}
        for instruction in instructions:
            if isinstance(instruction, Feed | ReadVariable | AssignVariable):
                continue
            needs = tuple(sorted({makers[v] for v in instruction.inputs if v in makers}))
            number = len(self.records)
            record = self._record(instruction, times)
            record = dataclasses.replace(record, needs=needs, inside=inside, alternative=alternative)
            self.records.append(record)
            makers.update(dict.fromkeys(instruction.outputs, number))
            if isinstance(instruction, Loop):
                repeats = times * (instruction.length if instruction.is_bounded else 1)
                condition = instruction.condition.instructions if instruction.condition else ()
                self._add_all([*condition, *instruction.body], repeats, number, 0)
            elif isinstance(instruction, Branch):
                self._add_all(instruction.if_true, times, number, 0)
                self._add_all(instruction.if_false, times, number, 1)

    def _record(self, instruction: Instruction, times: int) -> OperationRecord:
        operation = instruction.operation
        site = operation.site
        record = OperationRecord(
            operation.name,
            "",
            "other",
            site.filename,
            site.line,
            site.function,
            times,
            label=operation.label,
            is_gradient=operation.gradient_of is not None,
        )
        if isinstance(instruction, Compute):
            return self._of_compute(record, instruction)
        if isinstance(instruction, Collective):
            return self._of_collective(record, instruction)
        if isinstance(instruction, Loop):
            bubble = 0.0 if instruction.pipeline is None else instruction.pipeline.bubble
            return dataclasses.replace(record, kind="loop", category="loop", bubble=bubble)
        return dataclasses.replace(record, kind="branch", category="branch")

    def _of_compute(self, record: OperationRecord, compute: Compute) -> OperationRecord:
        fused = self._fused.get(compute, _NOTHING)
        return dataclasses.replace(
            record,
            kind=compute.kind,
            category=_category(compute),
            flops=compute.flops,
            bytes_read=_bytes_read(compute),
            bytes_written=0 if compute.facts.is_view else sum(compute.bytes_of(v) for v in compute.outputs),
            dtype=(compute.inputs or compute.outputs)[0].dtype.name,
            products=compute.facts.products,
            chain=fused.chain,
            chain_length=fused.chain_length,
            fused_bytes_read=fused.bytes_read,
            fused_bytes_written=fused.bytes_written,
            bytes_beside_products=fused.bytes_beside_products,
            is_update=compute.facts.is_update or compute in self._updates,
            transcendentals=compute.flops if compute.facts.kernel in _TRANSCENDENTAL else compute.facts.transcendentals,
            has_kernel=isinstance(compute.emit, EmittedFunction) and isinstance(compute.emit.tf_fn, KernelFunction),
            draws_random_bits=compute.facts.draws_random_bits,
        )

    def _of_collective(self, record: OperationRecord, collective: Collective) -> OperationRecord:
        step, plan = collective.step, self._plan
        if step.axes not in self._crossing:
            self._crossing[step.axes] = crossing_axes(step.axes, plan.mesh_shape, plan.process_of_core)
        return dataclasses.replace(
            record,
            kind=step.kind,
            category="collective",
            dtype=collective.input.dtype.name,
            bytes_read=collective.input.slice_bytes,
            bytes_written=collective.output.slice_bytes,
            axes=step.axes,
            process_axes=self._crossing[step.axes],
            slice_bytes=collective.input.slice_bytes,
            bytes_sent=accounting.collective_bytes(collective, plan),
            destinations=step.destinations or (),
        )


def _category(compute: Compute) -> Category:
    facts = compute.facts
    if facts.products:
        return "product"
    if facts.is_view:
        return "view"
    if facts.is_reduction:
        return "reduction"
    is_elementwise = facts.is_elementwise_or_moves or facts.multiplies or facts.expands or facts.adds_to_part
    return "elementwise" if is_elementwise or facts.is_trivial or facts.draws_random_bits else "other"


def _bytes_read(compute: Compute) -> int:
    facts = compute.facts
    if facts.is_view:
        return 0
    inputs = sum(compute.bytes_of(v) for v in compute.inputs)
    return min(inputs, sum(v.slice_bytes for v in compute.outputs)) if facts.takes_own_slice else inputs
