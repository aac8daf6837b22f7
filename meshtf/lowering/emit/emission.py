"""From a plan to one traced TensorFlow function that every core runs, and the function that starts it everywhere."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.layout import Axes
from meshtf.lowering.emit._grappler import grappler_off
from meshtf.lowering.emit.control_flow import emit_branch, emit_loop, only_sliced
from meshtf.lowering.emit.core_results import (
    NO_CHECK_FAILED,
    CoreResults,
    asserted_fetches,
    first_of,
    whole_fetches,
)
from meshtf.lowering.emit.fed_slices import FedSlices
from meshtf.lowering.emit.scopes import scope_name
from meshtf.lowering.emit.variable_slices import SlicesByHandle, VariableSlices
from meshtf.lowering.passes.update_fusion import FusedUpdate, consumers_of, updates_in_place
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device
from meshtf.mesh_impl.mesh_impl import MeshImpl, Results
from meshtf.mesh_impl.processor_products import product_dtype
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.planning import core_positions
from meshtf.planning.adding_in_place import AddToPart, Zeros
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Collective,
    Compute,
    Cut,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
    walk,
)


class EmittedProgram:
    """A plan as TensorFlow functions: traced when first called, once for all cores.

    Args:
      plan: what each core runs.
      mesh_impl: where; it has devices.
      slices: of each variable, by core, of the cores in this process.
      runs_once: so that what is compiled costs more than what it then saves.
    """

    def __init__(
        self,
        plan: Plan,
        mesh_impl: MeshImpl,
        slices: Mapping[str, Mapping[int, tf.Variable]],
        *,
        runs_once: bool = False,
    ) -> None:
        self._plan = plan
        self._mesh_impl = mesh_impl
        self._slices = slices
        self._runs_once = runs_once
        self._cores = [(core, mesh_impl.devices[core]) for core in local_cores(mesh_impl.devices)]
        self._collectives = _collectives(plan, mesh_impl)
        self.trace_count = 0
        signature = [tf.TensorSpec([plan.mesh_shape.ndims], tf.int32), *self._collectives.signature()]
        signature += [tf.TensorSpec(f.output.slice_shape, f.output.dtype) for f in plan.feeds]
        signature += [tf.TensorSpec([], tf.resource) for _ in plan.variable_names]
        self.core_function = tf.function(
            self._core_program,
            input_signature=signature,
            autograph=False,
            # Inlined, a collective inside a loop would get a different name on each core, and time out.
            experimental_attributes={"_noinline": True},
        )
        self._on_all_cores: dict[bool, Callable[..., tuple[list[tf.Tensor], tf.Tensor]]] = {}

    def __call__(self, feeds: Sequence[tf.Tensor]) -> Results:
        """Runs the program once. Returns the fetches, whole, and the index of the check that failed, or -1.

        Inside a tf.function, where nobody can look at the index, a failed check is an InvalidArgumentError.
        """
        with grappler_off():
            return self._traced(asserted=bool(self._plan.checks) and not tf.executing_eagerly())(*feeds)

    def start(self, feeds: Sequence[tf.Tensor]) -> Callable[[], Results]:
        """Runs it once, to its end, and returns what gives its results."""
        results = self(feeds)
        return lambda: results

    def _traced(self, *, asserted: bool) -> Callable[..., tuple[list[tf.Tensor], tf.Tensor]]:
        if asserted not in self._on_all_cores:
            body = self._on_every_core_asserted if asserted else self._on_every_core
            specs = [tf.TensorSpec(f.output.shape.to_integer_list, f.output.dtype) for f in self._plan.feeds]
            self._on_all_cores[asserted] = tf.function(body, autograph=False).get_concrete_function(*specs)
        return self._on_all_cores[asserted]

    def _on_every_core(self, *feeds: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        results = self._started(feeds)
        with tf.device(self._cores[0][1]):
            return whole_fetches(self._plan, results), tf.identity(first_of(results)[-1])

    def _on_every_core_asserted(self, *feeds: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        results = self._started(feeds)
        with tf.device(self._cores[0][1]):
            return asserted_fetches(self._plan, results)

    def _started(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        """What each core of this process gives: slices of the fetches, and the index of the failed check."""
        results = {}
        slices = FedSlices(self._plan, feeds)
        for core, device in self._cores:
            own = slices.of(core, device)
            # Collectives go to the core's own device, since they take tokens that are there.
            with tf.device(home_device(device)):
                handles = [self._slices[name][core].handle for name in self._plan.variable_names]
                coordinates = tf.constant(
                    list(core_positions.coordinates(core, self._plan.mesh_shape).values()), tf.int32
                )
                arguments = self._collectives.arguments(core)
                results[core] = self.core_function(coordinates, *arguments, *own, *handles)
        return results

    def _core_program(self, coordinates: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        self.trace_count += 1
        plan = self._plan
        counts = [len(self._collectives.signature()), len(plan.feeds), len(plan.variable_names)]
        bound = self._collectives.bind(arguments[: counts[0]])
        feeds = arguments[counts[0] : counts[0] + counts[1]]
        handles = dict(zip(plan.variable_names, arguments[counts[0] + counts[1] :], strict=True))
        devices = [device for _, device in self._cores]
        on_processors = all(tf.DeviceSpec.from_string(d).device_type == "CPU" for d in devices)
        body = CoreProgram(
            plan,
            TracedCore(plan, coordinates, on_processors=on_processors),
            bound,
            SlicesByHandle(handles),
            on_processors=on_processors,
            compiles_loops=not self._runs_once,
        )
        return body.run(dict(zip((f.name for f in plan.feeds), feeds, strict=True)))


class TracedCore:
    """A core whose coordinates are known when the program runs."""

    def __init__(self, plan: Plan, coordinates: tf.Tensor, *, on_processors: bool = False) -> None:
        self._on_processors = on_processors
        self._sizes = {d.name: d.size for d in plan.mesh_shape}
        names = plan.mesh_shape.dimension_names
        split = tf.unstack(coordinates) if names else []
        self._coordinates = dict(zip(names, split, strict=True))
        self._positions: dict[Axes, tf.Tensor] = {}
        self._transposed: dict[tuple[Any, tuple[int, ...]], tf.Tensor] = {}
        self._begins: dict[tuple[int, tuple[Cut, ...]], tf.Tensor] = {}

    def inside(self) -> TracedCore:
        """The same core inside a loop or a branch: it may use what was made outside, and keeps its own there."""
        inner = copy.copy(self)
        inner._positions, inner._transposed = dict(self._positions), dict(self._transposed)
        inner._begins = dict(self._begins)
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

    def product_dtype(self, dtype: tf.DType) -> tf.DType:
        return product_dtype(dtype) if self._on_processors else dtype


class CoreProgram:
    """Emits the instructions of a plan, inside the trace of the per-core function."""

    def __init__(
        self,
        plan: Plan,
        core: TracedCore,
        collectives: BackendCollectives,
        variables: VariableSlices,
        *,
        on_processors: bool = False,
        compiles_loops: bool = False,
        may_assign: tf.Tensor | None = None,
    ) -> None:
        self.slices: dict[Value, tf.Tensor] = {}
        self.arrays: dict[Value, tf.TensorArray] = {}
        """What loops stacked, and only loops take parts of: never put together, which would take as much again."""
        self.parts: dict[Value, list[tf.Tensor]] = {}
        """What is there in parts, too, along the first dimension. XLA does not make a whole that nothing uses."""
        self.unrolls_loops = False
        self.only_sliced = only_sliced(plan)
        self._plan = plan
        self._core = core
        self._collectives = collectives
        self._variables = variables
        self.on_processors = on_processors
        self.compiles_loops = compiles_loops
        self._may_assign = may_assign
        """Where it is false, every check fails. None where nothing before can have failed."""
        self._checked = frozenset(check.value for check in plan.checks)
        self._numbers = {instruction: n for n, (instruction, _) in enumerate(walk(plan.instructions))}
        self._feeds: Mapping[str, tf.Tensor] = {}
        self._in_place = updates_in_place(plan) if variables.handles else {}
        self._consumers = consumers_of(plan)

    def run(self, feeds: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Emits everything; returns the slices of the fetches and the index of the first failed check."""
        self._feeds = feeds
        done = {name for pairs in self._in_place.values() for _, name in pairs.values()}
        assignments = [i for i in self._plan.assignments if i.name not in done]
        self.emit([i for i in self._plan.instructions if not isinstance(i, AssignVariable) and self._is_needed(i)])
        failed = self._first_failed_check()
        if assignments:
            succeeded = tf.equal(failed, NO_CHECK_FAILED) if self._plan.checks else None
            self._variables.commit(lambda: self.emit(assignments), succeeded)
        return [*(tf.identity(self.slices[v]) for v in self._plan.fetches), failed]

    def emit(self, instructions: Sequence[Instruction]) -> None:
        """Emits instructions, in order."""
        for instruction in instructions:
            scope = scope_name(self._numbers[instruction], instruction)
            with tf.name_scope(scope), tf.control_dependencies(self._awaited(instruction)):
                _EMITTERS[type(instruction)](self, instruction)
            for value in instruction.outputs:
                if value in self.slices and value not in self.arrays:
                    self.slices[value].set_shape(value.slice_shape)
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
        return self.parts[value] if value in self.parts else tf.unstack(self.slices[value])

    def compiled(self, given: Mapping[Value, tf.Tensor]) -> CoreProgram:
        """This program inside a function that XLA compiles, which has these slices alone."""
        inner = self.inside({})
        inner.slices, inner.arrays, inner.parts = dict(given), {}, {}
        inner.unrolls_loops = True
        # XLA has no kernels for TensorFlow's updates in place, which it does by itself.
        inner.compiles_loops = inner.on_processors = False
        return inner

    def _awaited(self, instruction: Instruction) -> list[tf.Tensor]:
        awaited = self._plan.awaited.get(instruction)
        return [] if awaited is None else [self.slices[awaited.outputs[0]]]

    def _is_needed(self, instruction: Instruction) -> bool:
        """False for a read of what only updates in place use: it would hold on to the memory that they write to."""
        if not isinstance(instruction, ReadVariable):
            return True
        users = self._consumers.get(instruction.output, [])
        return not users or not all(self._updates(user, instruction.name) for user in users)

    def _updates(self, instruction: Instruction | None, name: str) -> bool:
        """Whether an instruction updates a variable where it is."""
        pairs = self._in_place.get(instruction, {}) if isinstance(instruction, Compute) else {}
        return any(name == own for _, own in pairs.values())

    def _compute(self, instruction: Compute) -> None:
        if instruction in self._in_place:
            return self._update_in_place(instruction)
        slices = [self.slices[v] for v in instruction.inputs]
        if self.on_processors and isinstance(instruction.emit, FusedUpdate):
            results = instruction.emit.flat(*slices)
        elif self.on_processors and isinstance(instruction.emit, AddToPart | Zeros):
            results = instruction.emit.in_place(*slices)
        else:
            results = instruction.emit(self._core, *slices)
        if isinstance(results, tf.Tensor):
            results = [results]
        for value, result in zip(instruction.outputs, results, strict=True):
            self.slices[value] = result

    def _update_in_place(self, instruction: Compute) -> None:
        pairs = self._in_place[instruction]
        variables = {n: (result, self._variables.handles[name]) for n, (result, name) in pairs.items()}
        slices = [self.slices[v] for n, v in enumerate(instruction.inputs) if n not in variables]
        assert isinstance(instruction.emit, FusedUpdate)
        for n, result in instruction.emit.in_place(variables, slices, in_blocks=self.on_processors).items():
            self.slices[instruction.outputs[n]] = result

    def _collective(self, instruction: Collective) -> None:
        x = self.slices[instruction.input]
        self.slices[instruction.output] = instruction.step.emit(self._collectives, x)

    def _feed(self, instruction: Feed) -> None:
        self.slices[instruction.output] = self._feeds[instruction.name]

    def _read(self, instruction: ReadVariable) -> None:
        self.slices[instruction.output] = self._variables.read(instruction.name, instruction.output.dtype)

    def _assign(self, instruction: AssignVariable) -> None:
        self._variables.assign(instruction.name, self.slices[instruction.input])

    def _first_failed_check(self) -> tf.Tensor:
        failed = tf.constant(NO_CHECK_FAILED)
        for index, check in reversed(list(enumerate(self._plan.checks))):
            failed = tf.where(self.slices[check.value], failed, index)
        return failed


_EMITTERS: dict[type, Callable[[CoreProgram, Any], None]] = {
    Compute: CoreProgram._compute,
    Collective: CoreProgram._collective,
    Feed: CoreProgram._feed,
    ReadVariable: CoreProgram._read,
    AssignVariable: CoreProgram._assign,
    Loop: emit_loop,
    Branch: emit_branch,
}


def _collectives(plan: Plan, mesh_impl: MeshImpl) -> SpmdCollectives:
    steps = [c.step for c in plan.collectives]
    axes = dict.fromkeys(s.axes for s in steps if s.destinations is None)
    permutations = dict.fromkeys(s.destinations for s in steps if s.destinations is not None)
    exchanging = [s.axes for s in steps if s.split_dim is not None]
    timeout_seconds = mesh_impl.options.collective_timeout_seconds
    mesh = DeviceMesh(plan.mesh_shape, mesh_impl.devices, timeout_seconds, plan.process_of_core)
    return SpmdCollectives(mesh, list(axes), list(permutations), exchanging)
