"""From the instructions of a plan to operations inside the trace of what one core runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from meshtf.layout import Axes
from meshtf.lowering.emit._cheap_operations import know_shape
from meshtf.lowering.emit._compiled_unrun import CompileToo
from meshtf.lowering.emit.control_flow import emit_branch, emit_loop
from meshtf.lowering.emit.core_results import NO_CHECK_FAILED
from meshtf.lowering.emit.guarded_kernels import GivenKernel, GuardedKernels
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.scopes import scope_name
from meshtf.lowering.emit.sums_in_parts import with_added
from meshtf.lowering.emit.variable_slices import VariableSlices
from meshtf.lowering.passes.update_fusion import FusedUpdate
from meshtf.mesh_impl.processor_kernels import ProcessorKernels
from meshtf.mesh_impl.processor_products import product_dtype
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.local_work.processor_work import ProcessorWork
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Carried,
    Collective,
    Compute,
    Cut,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
)

_WORTH_A_VIEW = 1 << 14
"""Bytes of a part, from which on to copy it costs more than the operations that say where it is."""


class TracedCore:
    """A core whose coordinates are known when the program runs.

    Args:
      plan: of the program.
      coordinates: of the core, int32 [axes of the mesh], or a scalar for each axis by name.
      on_processors: TensorFlow runs it operation by operation, on processors.
      knows_processor: of this process, so that it may take the kernels that are the fastest here.
    """

    def __init__(
        self,
        plan: Plan,
        coordinates: tf.Tensor | Mapping[str, tf.Tensor],
        *,
        on_processors: bool = False,
        knows_processor: bool = False,
    ) -> None:
        self._on_processors = on_processors
        self._kernels = ProcessorKernels.of_this_process() if knows_processor else None
        """None, too, where a compiler chooses."""
        self._sizes = {d.name: d.size for d in plan.mesh_shape}
        if not isinstance(coordinates, Mapping):
            names = plan.mesh_shape.dimension_names
            coordinates = dict(zip(names, tf.unstack(coordinates) if names else [], strict=True))
        self._coordinates = coordinates
        self._positions: dict[Axes, tf.Tensor] = {}
        self._transposed: dict[tuple[Any, tuple[int, ...]], tf.Tensor] = {}
        self._reshaped: dict[tuple[Any, tuple[int, ...]], tf.Tensor] = {}
        self._sources: dict[Any, tf.Tensor] = {}
        self._begins: dict[tuple[int, tuple[Cut, ...]], tf.Tensor] = {}

    def inside(self) -> TracedCore:
        """The same core inside a loop or a branch: it may use what was made outside, and keeps its own there."""
        inner = copy.copy(self)
        inner._positions, inner._transposed = dict(self._positions), dict(self._transposed)
        inner._reshaped, inner._sources = dict(self._reshaped), dict(self._sources)
        inner._begins = dict(self._begins)
        return inner

    def compiled(self) -> TracedCore:
        """The same core inside a function that a compiler makes a program of."""
        inner = self.inside()
        inner._kernels = None
        return inner

    def coordinate(self, axes: Axes) -> tf.Tensor:
        if axes not in self._positions:
            position = tf.zeros([], tf.int32) if not axes else self._coordinates[axes[0]]
            for axis in axes[1:]:
                position = position * self._sizes[axis] + self._coordinates[axis]
            self._positions[axes] = position
        return self._positions[axes]

    def begin(self, rank: int, cuts: tuple[Cut, ...]) -> tf.Tensor:
        key = (rank, cuts)
        if key not in self._begins:
            begin: list[tf.Tensor | int] = [0] * rank
            for dim, axes, size in cuts:
                begin[dim] = self.coordinate(axes) * size + begin[dim]
            self._begins[key] = tf.stack(begin)
        return self._begins[key]

    def transposed(self, x: tf.Tensor, permutation: Sequence[int]) -> tf.Tensor:
        key = (x.ref(), tuple(permutation))
        if key not in self._transposed:
            self._transposed[key] = tf.transpose(x, permutation)
        return self._transposed[key]

    def reshaped(self, x: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
        source = self._sources.get(x.ref(), x)
        if source.shape.as_list() == list(size):
            return source  # each operation costs the executor some ten microseconds on every core
        key = (source.ref(), tuple(size))
        if key not in self._reshaped:
            made = self._reshaped[key] = tf.reshape(source, np.array(size, np.int32))  # a list takes far longer
            self._sources[made.ref()] = source
        return self._reshaped[key]

    def product_dtype(self, dtype: tf.DType) -> tf.DType:
        return product_dtype(dtype) if self._on_processors else dtype

    def product(self, a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
        if self._kernels is None:
            return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        return self._kernels.product(a, b, transpose_a=transpose_a, transpose_b=transpose_b)

    def image_gradient(self, **arguments: Any) -> tf.Tensor:
        if self._kernels is None:
            return tf.raw_ops.Conv2DBackpropInput(**arguments)
        return self._kernels.image_gradient(**arguments)


class CoreProgram:
    """Emits the instructions of a plan, inside the trace of the per-core function."""

    def __init__(
        self,
        facts: PlanFacts,
        core: TracedCore,
        collectives: BackendCollectives,
        variables: VariableSlices,
        *,
        on_processors: bool = False,
        compile_too: CompileToo | None = None,
        may_assign: tf.Tensor | None = None,
        done_before: Mapping[Loop, Sequence[Value]] | None = None,
    ) -> None:
        self.slices: dict[Value, tf.Tensor] = {}
        self.arrays: dict[Value, tf.TensorArray] = {}
        """What loops stacked, and only loops take parts of: never put together, which would take as much again."""
        self.parts: dict[Value, list[tf.Tensor]] = {}
        """What is there in parts, too, along the first dimension. XLA does not make a whole that nothing uses."""
        self.unrolls_loops = False
        self.only_sliced, self.read = facts.only_sliced, facts.read
        self._facts = facts
        self._plan = facts.plan
        self._core = core
        self._collectives = collectives
        self._variables = variables
        self.on_processors = on_processors
        self.compile_too = compile_too
        """Has the functions of loops compiled. None where no loop is to be."""
        self.is_repeated = False
        """Whether it is inside a loop, which goes through it more than once."""
        self._may_assign = may_assign
        """Where it is false, every check fails. None where nothing before can have failed."""
        self._done_before = done_before or {}
        """By loop, what is to be there when it begins, for a compiler that chooses an order of its own."""
        self._checked = frozenset(check.value for check in facts.plan.checks)
        self._feeds: Mapping[str, tf.Tensor] = {}
        self._training_kernels = GuardedKernels()
        self._made_by_kernels: set[Value] = set()

    def run(self, feeds: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Emits everything; returns the slices of the fetches and the index of the first failed check."""
        self.emit_stretch(self._plan.instructions, feeds)
        return self.finish()

    def emit_stretch(self, instructions: Sequence[Instruction], feeds: Mapping[str, tf.Tensor]) -> None:
        """Emits instructions of the plan, in order, but those that assign variables."""
        self._feeds = feeds
        unread = self._facts.unread
        self.emit([i for i in instructions if not isinstance(i, AssignVariable) and unread.isdisjoint(i.outputs)])
        self._training_kernels.emit()

    def finish(self) -> list[tf.Tensor]:
        """Assigns variables; returns the slices of the fetches and the index of the first failed check."""
        assignments = self._facts.late_assignments
        failed = self._first_failed_check()
        if assignments:
            succeeded = tf.equal(failed, NO_CHECK_FAILED) if self._plan.checks else None
            self._variables.commit(lambda: self.emit(assignments), succeeded)
        return [*(tf.identity(self.slices[v]) for v in self._plan.fetches), failed]

    def emit(self, instructions: Sequence[Instruction]) -> None:
        """Emits instructions, in order."""
        for instruction in instructions:
            if not self._made_by_kernels.isdisjoint(instruction.inputs):
                self._training_kernels.emit()
            scope = scope_name(self._facts.numbers[instruction], instruction)
            with tf.name_scope(scope), tf.control_dependencies(self._awaited(instruction)):
                _EMITTERS[type(instruction)](self, instruction)
            for value in instruction.outputs:
                if value in self.slices and value not in self.arrays and value not in self._facts.sums.additions:
                    know_shape(self.slices[value], self.shape_of(value))
                if value in self._checked and self._may_assign is not None:
                    self.slices[value] = tf.logical_and(self.slices[value], self._may_assign)

    def inside(self, given: Mapping[Value, tf.Tensor]) -> CoreProgram:
        """This program inside a loop or a branch, where it has some more slices. What is made there stays there."""
        inner = copy.copy(self)
        inner._core = self._core.inside()
        inner.slices, inner.arrays, inner.parts = {**self.slices, **given}, dict(self.arrays), dict(self.parts)
        return inner

    def take(self, results: Mapping[Value, tf.Tensor | list[tf.Tensor]]) -> None:
        """More slices, or their parts along the first dimension."""
        for value, result in results.items():
            if isinstance(result, list):
                self.parts[value], result = result, tf.stack(result)
            self.slices[value] = result

    def parts_of(self, value: Value) -> list[tf.Tensor]:
        """Along the first dimension."""
        return self.parts[value] if value in self.parts else tf.unstack(self.slice_of(value))

    def initial_of(self, carried: Carried) -> tf.Tensor:
        """What a loop begins with."""
        return self._facts.sums.initial_of(carried, self.slices)

    def take_carried(self, loop: Loop, finals: Sequence[tf.Tensor | list[tf.Tensor]]) -> None:
        """What a loop has carried to its end."""
        self.take(self._facts.sums.results_of(loop, finals))

    def slice_of(self, value: Value) -> tf.Tensor:
        """Put together, if loops made it in parts."""
        return self.slices[value] if value in self.slices else self.stack_of(self.arrays[value])

    def stack_of(self, array: tf.TensorArray) -> tf.Tensor:
        """The slice that has these parts along its first dimension."""
        return array.stack()

    def part(self, value: Value, index: tf.Tensor | int, dim: int) -> tf.Tensor:
        """One part of a slice along a dimension: on processors, where it lies in one piece, without a copy."""
        x, size = self.slices[value], value.slice_shape
        is_in_one_piece = math.prod(size[:dim]) == 1
        if self.on_processors and is_in_one_piece and value.slice_bytes >= size[dim] * _WORTH_A_VIEW:
            parts = tf.reshape(x, [size[dim], *size[dim + 1 :]])
            part = tf.slice(parts, [index] + [0] * (parts.shape.rank - 1), [1, *size[dim + 1 :]])
            return tf.reshape(part, [*size[:dim], *size[dim + 1 :]])
        return tf.gather(x, index, axis=dim)

    def scalar(self, value: Value) -> tf.Tensor:
        """What all cores have alike, for control flow."""
        return self.slices[value]

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """Of the tensor that stands for a value."""
        return value.slice_shape

    def compiled(self, given: Mapping[Value, tf.Tensor | list[tf.Tensor]]) -> CoreProgram:
        """This program inside a function that XLA compiles, which has these slices alone, some of them in parts."""
        inner = self.inside({})
        inner._core = self._core.compiled()
        inner.slices, inner.arrays, inner.parts = {}, {}, {}
        inner.take(given)
        inner.unrolls_loops = True
        # XLA has no kernels for TensorFlow's updates in place, which it does by itself.
        inner.compile_too, inner.on_processors = None, False
        return inner

    def _loop(self, loop: Loop) -> None:
        if loop in self._done_before:
            values = list(dict.fromkeys([*(c.initial for c in loop.carried), *self._done_before[loop]]))
            tied: Any = gen_xla_ops.xla_optimization_barrier(input=[self.slices[v] for v in values])
            self.slices.update(zip(values, tied, strict=True))
        emit_loop(self, loop)

    def _awaited(self, instruction: Instruction) -> list[tf.Tensor]:
        # What an earlier stretch made is there.
        return [self.slices[v] for v in self._facts.awaited_by(instruction) if v in self.slices]

    def compute(self, instruction: Compute) -> None:
        """Local work of the core."""
        if instruction in self._facts.in_place:
            return self._update(instruction)
        slices = [self.slices[v] for v in instruction.inputs]
        if instruction.outputs[0] in self._facts.sums.additions:
            return self._add_in_parts(instruction, slices)
        if self.on_processors and isinstance(instruction.emit, FusedUpdate):
            if instruction.emit.training_kernel({}) is not None:
                return self._update(instruction)
            results = instruction.emit.flat(*slices)
        elif self.on_processors and isinstance(instruction.emit, AddToPart | Zeros):
            results = instruction.emit.in_place(*slices)
        elif self.on_processors and isinstance(instruction.emit, ProcessorWork):
            results = instruction.emit.on_processors(self._core, *slices)
        else:
            results = instruction.emit(self._core, *slices)
        if isinstance(results, tf.Tensor):
            results = [results]
        for value, result in zip(instruction.outputs, results, strict=True):
            self.slices[value] = result

    def _add_in_parts(self, instruction: Compute, slices: Sequence[tf.Tensor]) -> None:
        (output,) = instruction.outputs
        if output not in self._facts.sums.zeros:
            sums, term, *positions = slices
            self.slices[output] = with_added(sums, self._facts.sums.additions[output], term, *positions)

    def _update(self, instruction: Compute) -> None:
        """By a training kernel, or compiled, where the variables are; what is left becomes slices."""
        pairs = self._facts.in_place.get(instruction, {})
        variables = {n: (result, self._variables.handles[name]) for n, (result, name) in pairs.items()}
        update = instruction.emit
        assert isinstance(update, FusedUpdate)
        count = len(update.inputs)
        slices = {n: self.slices[v] for n, v in enumerate(instruction.inputs[:count]) if n not in variables}
        guards = [self.slices[v] for v in instruction.inputs[count:]]
        assigned = {n: result for n, (result, _) in variables.items()}
        if self.on_processors and (kernel := update.training_kernel(assigned)) is not None:
            made = [v for n, v in enumerate(instruction.outputs) if n not in assigned.values()]
            handles = {n: handle for n, (_, handle) in variables.items()}
            parts = {n: slices[n] for n in kernel.update.variables if n not in handles}

            def take(part: int, new: tf.Tensor) -> None:
                self.slices.update(dict.fromkeys(made, new))

            given = GivenKernel(kernel, handles, parts, kernel.update.values(slices), take)
            self._training_kernels.add(given, guards)
            self._made_by_kernels.update(made)
            return
        given = [*slices.values(), *guards]
        for n, result in update.in_place(variables, given, on_processors=self.on_processors).items():
            self.slices[instruction.outputs[n]] = result

    def collective(self, instruction: Collective) -> None:
        x = self.slices[instruction.input]
        self.slices[instruction.output] = instruction.step.emit(self._collectives, x)

    def _feed(self, instruction: Feed) -> None:
        self.take({instruction.output: self._feeds[instruction.name]})

    def _read(self, instruction: ReadVariable) -> None:
        self.take({instruction.output: self._variables.read(instruction.name, instruction.output.dtype)})

    def _assign(self, instruction: AssignVariable) -> None:
        self._variables.assign(instruction.name, self.slices[instruction.input])

    def _first_failed_check(self) -> tf.Tensor:
        failed = tf.constant(NO_CHECK_FAILED)
        for index, check in reversed(list(enumerate(self._plan.checks))):
            failed = tf.where(self.slices[check.value], failed, index)
        return failed


_EMITTERS: dict[type, Callable[[CoreProgram, Any], None]] = {
    Compute: lambda program, compute: program.compute(compute),
    Collective: lambda program, collective: program.collective(collective),
    Feed: CoreProgram._feed,
    ReadVariable: CoreProgram._read,
    AssignVariable: CoreProgram._assign,
    Loop: CoreProgram._loop,
    Branch: emit_branch,
}
