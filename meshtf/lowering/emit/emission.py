"""From a plan to the traced TensorFlow function that every core runs, and the function that starts it everywhere.

There is one, but where a loop is compiled for all cores at once: then one before it, and one behind it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.garbage_collection import garbage_collection_paused
from meshtf.lowering.emit._compiled_unrun import CompileToo, compiled_meanwhile
from meshtf.lowering.emit._function_calls import CalledFunction, hides_bodies
from meshtf.lowering.emit._grappler import grappler_off
from meshtf.lowering.emit._outermost_calls import OutermostFunction
from meshtf.lowering.emit._traced_function import traced_function
from meshtf.lowering.emit.alike_cores import alike_cores
from meshtf.lowering.emit.all_cores import AllCores, takes_all_cores
from meshtf.lowering.emit.batched_work import BatchedWork
from meshtf.lowering.emit.core_program import CoreProgram, TracedCore
from meshtf.lowering.emit.core_results import CoreResults, asserted_fetches, first_of, whole_fetches
from meshtf.lowering.emit.early_compilation import updates_compiled_meanwhile
from meshtf.lowering.emit.fed_slices import FedSlices
from meshtf.lowering.emit.joint_loop import JointLoop
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.program_collectives import ProgramCollectives
from meshtf.lowering.emit.stretches.alike_stretches import likeness
from meshtf.lowering.emit.stretches.differing_slices import DifferingSlices
from meshtf.lowering.emit.stretches.stretches import Stretch, stretches_of_program
from meshtf.lowering.emit.variable_slices import SlicesByHandle
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.freed_memory import hand_back_freed_memory
from meshtf.mesh_impl.home_device import home_device
from meshtf.mesh_impl.mesh_impl import MeshImpl, Results
from meshtf.mesh_impl.virtual_cpus import num_processors
from meshtf.planning import core_positions
from meshtf.planning.plan import Instruction, Loop, Plan, Value, walk
from meshtf.tensorflow_private.traced_functions import NOT_INLINED

_MANY_BYTES = 64 << 20
"""Of slices that a program makes. To look for what was freed takes milliseconds, as many as a small program's steps."""


class EmittedProgram:
    """A plan as TensorFlow functions: traced when first called, each once for all cores.

    Args:
      plan: what each core runs.
      mesh_impl: where; it has devices.
      slices: of each variable, by core, of the cores in this process.
      runs_once: so that to compile costs more than it then saves; and what several cores make alike, one of them makes.
      is_saved: for a SavedModel, which another process runs, on what processor nobody knows.

    Attributes:
      traces: how often each stretch has been traced, those inside of loops and branches too.
    """

    @garbage_collection_paused()
    def __init__(
        self,
        plan: Plan,
        mesh_impl: MeshImpl,
        slices: Mapping[str, Mapping[int, tf.Variable]],
        *,
        runs_once: bool = False,
        is_saved: bool = False,
    ) -> None:
        self._plan = plan
        self._mesh_impl = mesh_impl
        self._slices = slices
        self._runs_once = runs_once
        self._is_saved = is_saved
        devices = {core: mesh_impl.devices[core] for core in local_cores(mesh_impl.devices)}
        self._copying = alike_cores(plan, devices) if runs_once else {}
        self._cores = [(core, device) for core, device in devices.items() if core not in self._copying]
        self._homes = {core: home_device(device) for core, device in self._cores}
        self._collectives = ProgramCollectives(plan, mesh_impl)
        self.traces: collections.Counter[Stretch] = collections.Counter()
        facts = PlanFacts.of(plan, writes_in_place=True, adds_in_parts=self._on_processors)
        differing = DifferingSlices(facts) if self._collectives.share_memory else None
        self._batched = BatchedWork(facts, differing) if differing is not None else None
        self._stretches = stretches_of_program(facts, self._is_together, differing)
        crossing = {v for stretch in self._stretches for v in (*stretch.entering, *stretch.leaving)}
        self._facts = dataclasses.replace(facts, only_sliced=facts.only_sliced - crossing)
        self._all_cores = AllCores(self._facts, differing, self._batched, self._run_stretch, lambda: self._for_all)
        self._places: dict[tuple[int, tf.Graph], tf.Tensor] = {}
        self._compile_too: CompileToo = lambda function: None
        self._joint_loops: dict[Loop, JointLoop] = {}
        self._functions: dict[Stretch, CalledFunction] = {}
        self._shared: dict[Hashable, CalledFunction] = {}
        self._on_all_cores: dict[bool, OutermostFunction] = {}

    def _keeps_processors_busy(self, stretch: Stretch) -> bool:
        """Whether a thread for each run of it does; where a core waits for collectives of the runtime, none does."""
        runs = len(self._cores)
        if stretch.axes is not None:
            positions = core_positions.positions(stretch.axes, self._plan.mesh_shape)
            runs = len({int(positions[core]) for core, _ in self._cores})
        return self._collectives.share_memory and runs >= num_processors()

    @property
    def _is_called_once(self) -> bool:
        """Whether one core does all in one stretch, where a function would only be one more thing to start."""
        return (
            self._plan.mesh_shape.size == 1
            and len(self._stretches) == 1
            and not self._keeps_processors_busy(*self._stretches)
        )

    @property
    def _on_processors(self) -> bool:
        return all(tf.DeviceSpec.from_string(device).device_type == "CPU" for _, device in self._cores)

    def _is_together(self, instruction: Instruction) -> bool:
        """Whether it is done for several cores at once: a loop that is compiled so; in one memory, what communicates,
        and what one kernel does for them."""
        if self._batched is None:
            return self._is_joint(instruction)
        return self._is_joint(instruction) or takes_all_cores(instruction) or self._batched.takes(instruction)

    def _is_joint(self, instruction: Instruction) -> bool:
        compilation = instruction.compilation if isinstance(instruction, Loop) else None
        return compilation is not None and compilation.is_joint and not self._runs_once

    @property
    def core_functions(self) -> list[tf.types.experimental.ConcreteFunction]:
        """What each core runs, one after the other; between them stands what all cores do at once."""
        return [self._function(stretch).function for stretch in self._stretches]

    def __call__(self, feeds: Sequence[tf.Tensor]) -> Results:
        """Runs the program once. Returns the fetches, whole, and the index of the check that failed, or -1.

        Inside a tf.function, where nobody can look at the index, a failed check is an InvalidArgumentError.
        """
        asserted = bool(self._plan.checks) and not tf.executing_eagerly()
        is_first = asserted not in self._on_all_cores
        with grappler_off():
            *fetches, failed = (
                self._first_call(feeds, asserted=asserted) if is_first else self._on_all_cores[asserted](feeds)
            )
        if self._copying:
            self._copy_assigned()
        if is_first:
            self._hand_back_freed_memory()
        return fetches, failed

    def _first_call(self, feeds: Sequence[tf.Tensor], *, asserted: bool) -> Sequence[tf.Tensor]:
        home = self._homes[self._cores[0][0]]
        with contextlib.ExitStack() as meanwhile:
            if self._on_processors and tf.executing_eagerly():
                self._compile_too = meanwhile.enter_context(compiled_meanwhile(self._joint_functions(), home))
                if len(self._cores) > 1:  # of one core's program, tracing is over too soon for it
                    meanwhile.enter_context(updates_compiled_meanwhile(self._facts, home))
            program = self._traced(asserted=asserted)
            self._hand_back_freed_memory()
            return program(feeds)

    def _copy_assigned(self) -> None:
        """To the cores that would have made the same. The memory is shared until one of them writes there."""
        for assignment in self._plan.assignments:
            slices = self._slices[assignment.name]
            for core, source in self._copying.items():
                slices[core].assign(slices[source])

    def start(self, feeds: Sequence[tf.Tensor]) -> Callable[[], Results]:
        """Runs it once, to its end, and returns what gives its results."""
        results = self(feeds)
        return lambda: results

    def _traced(self, *, asserted: bool) -> OutermostFunction:
        body = self._on_every_core_asserted if asserted else self._on_every_core
        specs = [tf.TensorSpec(f.output.shape.to_integer_list, f.output.dtype) for f in self._plan.feeds]
        # Inlined into a function of the user's, what a core computes would be optimized with what is there.
        attributes = NOT_INLINED if self._is_called_once else {}
        with garbage_collection_paused():
            traced = traced_function(body, specs, body.__name__, attributes)
            self._on_all_cores[asserted] = OutermostFunction(traced)
        return self._on_all_cores[asserted]

    def _hand_back_freed_memory(self) -> None:
        """So that what tracing and compiling have freed, and initial values, is not there beside what steps take."""
        made = sum(v.slice_bytes for i in self._plan.instructions for v in i.outputs)
        if self._mesh_impl.options.keep_freed_memory and made * len(self._cores) >= _MANY_BYTES:
            hand_back_freed_memory()

    def _on_every_core(self, *feeds: tf.Tensor) -> list[tf.Tensor]:
        results = self._started(feeds)
        with tf.device(self._cores[0][1]):
            return [*whole_fetches(self._plan, results), tf.identity(first_of(results)[-1])]

    def _on_every_core_asserted(self, *feeds: tf.Tensor) -> list[tf.Tensor]:
        results = self._started(feeds)
        with tf.device(self._cores[0][1]):
            fetches, failed = asserted_fetches(self._plan, results)
            return [*fetches, failed]

    def _started(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        """What each core of this process gives: slices of the fetches, and the index of the failed check."""
        slices = FedSlices(self._plan, feeds)
        self._fed = {core: slices.of(core, device) for core, device in self._cores}
        held: dict[int, dict[Value, tf.Tensor]] = {core: {} for core, _ in self._cores}
        results: CoreResults = {}
        first = [hides_bodies()] if len(self._stretches) > 1 else []
        with tf.device(self._homes[self._cores[0][0]]):
            self._for_all = self._collectives.for_all()
            for stretch in self._stretches:
                with tf.control_dependencies(first):
                    results = self._all_cores.run_stretch(stretch, held)
                for instruction in stretch.together:
                    self._do_together(instruction, held)
        self._places.clear()
        return results

    def _do_together(self, instruction: Instruction, held: Mapping[int, dict[Value, tf.Tensor]]) -> None:
        """For all cores, and adds what it makes to what each of them holds."""
        if not self._is_joint(instruction):
            return self._all_cores.run_together(instruction, held)
        made_by_core = self._joint_loop(instruction)(list(held.values()))
        for own, made in zip(held.values(), made_by_core, strict=True):
            own.update(made)

    @garbage_collection_paused()
    def _joint_functions(self) -> list[tf.types.experimental.ConcreteFunction]:
        loops = [i for stretch in self._stretches for i in stretch.together if self._is_joint(i)]
        return [self._joint_loop(loop).function for loop in loops]

    def _joint_loop(self, loop: Instruction) -> JointLoop:
        assert isinstance(loop, Loop)
        if loop not in self._joint_loops:
            self._joint_loops[loop] = JointLoop(self._plan, loop)
        return self._joint_loops[loop]

    def _run_stretch(self, stretch: Stretch, core: int, held: Mapping[Value, tf.Tensor]) -> Sequence[tf.Tensor]:
        """What a stretch gives on a core."""
        # Collectives of the runtime go to the core's own device, since they take tokens that are there.
        with self._at_home(core):
            handles = [self._slices[name][core].handle for name in stretch.variables]
            coordinates = self._coordinates(core)
            fed = [self._fed[core][name] for name in stretch.feeds]
            given = [held[v] for v in stretch.entering]
            arguments = [coordinates, *self._collectives.of_a_core.arguments(core), *fed, *given, *handles]
            if self._is_called_once:
                return self._core_program(stretch, *arguments)
            return self._function(stretch)(arguments)

    def _at_home(self, core: int) -> contextlib.AbstractContextManager[Any]:
        """Where a core computes. That of the first is entered once, since to find a device by name takes as long as a
        call."""
        home = self._homes[core]
        return contextlib.nullcontext() if home == self._homes[self._cores[0][0]] else tf.device(home)

    def _coordinates(self, core: int) -> tf.Tensor:
        """Of a core, int32 [axes of the mesh], made once in each function."""
        key = core, tf.compat.v1.get_default_graph()
        if key not in self._places:
            own = core_positions.coordinates(core, self._plan.mesh_shape)
            self._places[key] = tf.constant(list(own.values()), tf.int32)
        return self._places[key]

    def _function(self, stretch: Stretch) -> CalledFunction:
        """Of what a core runs, traced when first asked for; of stretches that are alike, once."""
        if stretch not in self._functions:
            key = likeness(stretch, self._facts)
            called = self._shared[key] if key in self._shared else self._traced_stretch(stretch)
            if key is not None and not called.may_fail:  # an error is to name the stretch
                self._shared[key] = called
            self._functions[stretch] = called
        return self._functions[stretch]

    def _traced_stretch(self, stretch: Stretch) -> CalledFunction:
        outputs = {f.name: f.output for f in self._plan.feeds}
        values = [*(outputs[name] for name in stretch.feeds), *stretch.entering]
        signature = [tf.TensorSpec([self._plan.mesh_shape.ndims], tf.int32), *self._collectives.of_a_core.signature()]
        signature += [self._facts.spec_of(v) for v in values]
        signature += [tf.TensorSpec([], tf.resource) for _ in stretch.variables]
        body = functools.partial(self._core_program, stretch)
        # Inlined, a collective inside a loop would get a different name on each core, and time out; and what several
        # cores call would be placed and optimized anew for each.
        traced = traced_function(body, signature, "core_program", NOT_INLINED)
        in_one_thread = self._keeps_processors_busy(stretch) and not _has_users_work(stretch.instructions)
        return CalledFunction(traced, in_one_thread=in_one_thread)

    def _core_program(self, stretch: Stretch, coordinates: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        self.traces[stretch] += 1
        plan, given = self._plan, iter(arguments)
        collectives = self._collectives.of_a_core
        bound = collectives.bind([next(given) for _ in collectives.signature()])
        feeds = {name: next(given) for name in stretch.feeds}
        entering = {v: next(given) for v in stretch.entering}
        handles = dict(zip(stretch.variables, given, strict=True))
        body = CoreProgram(
            self._facts,
            TracedCore(
                plan,
                coordinates,
                on_processors=self._on_processors,
                knows_processor=self._on_processors and not self._is_saved,
            ),
            bound,
            SlicesByHandle(handles),
            on_processors=self._on_processors,
            compile_too=None if self._runs_once else self._compile_too,
        )
        body.is_repeated = stretch not in self._stretches
        body.take(entering)
        body.emit_stretch(stretch.instructions, feeds)
        return body.finish() if stretch.ends_program else [body.slice_of(v) for v in stretch.leaving]


def _has_users_work(instructions: Sequence[Instruction]) -> bool:
    """Whether some of it is a function of the user's, which may fail, or wait for something."""
    return any(i.operation.why_not_compiled for i, _ in walk(instructions))
