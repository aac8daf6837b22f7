"""Emits the virtual CPUs of a process, which share one memory: each core's work in segments, collectives as arithmetic.

The plan of a data-parallel step on "rows:2" is cut where its cores communicate:

    segment 0 on core 0    segment 0 on core 1        each a call of the one function traced for segment 0
                 gradients added                      for both cores at once (`AllCores`)
    segment 1 on core 0    segment 1 on core 1

Segments that do the same work on several cores run once for these (`work_done_once`), segments that differ only in
their values share one traced function (`segment_likeness`), and XLA compiles a loop if its writer requests it
(`compiled_loops`).
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Hashable, Mapping, Sequence

import tensorflow as tf

from meshtf.lowering.emit.control_flow import emit_loop
from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram
from meshtf.lowering.emit.cores import coordinates_of, spmd_collectives
from meshtf.lowering.emit.feeds_and_fetches import CoreResults, FedSlices
from meshtf.lowering.emit.function_calls import TracedFunction
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByHandle
from meshtf.lowering.processors.all_cores import AllCores
from meshtf.lowering.processors.batched_work import BatchedWork
from meshtf.lowering.processors.compiled_loops import LoopOfAllCores
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.local_work import begins_with, processor_work
from meshtf.lowering.processors.segment_likeness import likeness
from meshtf.lowering.processors.segments import Segment, communicates, segments_of_body, segments_of_program
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.spmd.shared_memory_collectives import CollectivesForAll, SharedMemoryCollectives
from meshtf.mesh_impl.spmd.staged_collectives import StagedCollectives
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.plan import Branch, Instruction, Loop, Plan, Value
from meshtf.planning.process_spans import crossing_axes
from meshtf.tensorflow_private.traced_functions import NOT_INLINED
from meshtf.thresholds import UNTRACED_BYTES


class CoresInOneMemory:
    """The virtual CPUs of this process, emitted into one function; other processes may have more of the mesh.

    Args:
      plan: the plan that each core runs.
      mesh_impl: the mesh, which has only virtual CPUs.
      slices: the slices of this process, keyed by variable and core.
      runs_once: whether the program runs once, so that compiling a loop would cost more than it saves.

    Attributes:
      traces: the number of times that each segment has been traced, including segments inside loops and branches.
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
        self._slices = slices
        self._devices = {core: mesh_impl.devices[core] for core in local_cores(mesh_impl.devices)}
        self._home = home_device(next(iter(self._devices.values())))
        self.facts = PlanFacts.of(plan, writes_in_place=True)
        self.differing = DifferingSlices(self.facts)
        self.batched = BatchedWork(self.facts, self.differing)
        self._compiles_loops = not runs_once
        self._work = processor_work(self.facts, compiles_loops=self._compiles_loops)
        crossing = [c.step for c in plan.collectives if _crosses(c.step, plan)]
        self._between_processes = spmd_collectives(plan, mesh_impl, crossing)
        self._no_collectives = spmd_collectives(plan, mesh_impl, []).bind([])
        self._segments = segments_of_program(self.facts, self._is_together, self.differing)
        self._bodies: dict[Sequence[Instruction], list[Segment]] = {}
        self._functions: dict[Segment, TracedFunction] = {}
        self._shared: dict[Hashable, TracedFunction] = {}
        self._compiled: dict[Loop, LoopOfAllCores] = {}
        self.traces: collections.Counter[Segment] = collections.Counter()

    def results(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        fed = FedSlices(self._plan, feeds)
        self._fed = {core: fed.of(core, device) for core, device in self._devices.items()}
        cores = AllCores(self, {core: {} for core in self._devices})
        results: CoreResults = {}
        with tf.device(self._home):
            self.collectives = self._collectives()
            self._coordinates = {core: coordinates_of(core, self._plan) for core in self._devices}
            for segment in self._segments:
                results = cores.run_segment(segment)
        return results

    def segments_of_body(self, instructions: Sequence[Instruction], results: Sequence[Value]) -> Sequence[Segment]:
        if instructions not in self._bodies:
            self._bodies[instructions] = segments_of_body(
                instructions, results, self.facts, self._is_together, self.differing
            )
        return self._bodies[instructions]

    def run_segment(self, segment: Segment, core: int, held: Mapping[Value, tf.Tensor]) -> Sequence[tf.Tensor]:
        fed = [self._fed[core][name] for name in segment.feeds]
        handles = [self._slices[name][core].handle for name in segment.variables]
        arguments = [self._coordinates[core], *fed, *(held[v] for v in segment.entering), *handles]
        if tf.executing_eagerly():  # nothing is traced
            return self._core_program(segment, *arguments)
        return self._function(segment)(arguments)

    def loop(self, cores: AllCores, loop: Loop) -> None:
        if not self._is_compiled_for_all(loop):
            return emit_loop(cores, loop, begins_with(self.facts))
        if loop not in self._compiled:
            self._compiled[loop] = LoopOfAllCores(self.facts, self.differing, loop)
        self._compiled[loop].run(cores)

    def _is_together(self, instruction: Instruction) -> bool:
        """Whether it is done for several cores at once: it communicates, or one kernel does it for them."""
        return communicates(instruction) or self.batched.takes(instruction)

    def _is_compiled_for_all(self, loop: Loop) -> bool:
        return loop.compilation is not None and loop.compilation.is_joint and self._compiles_loops

    def _collectives(self) -> CollectivesForAll:
        mesh_shape, process_of_core = self._plan.mesh_shape, self._plan.process_of_core
        if not process_of_core:
            return SharedMemoryCollectives(mesh_shape)
        between = self._between_processes
        bound = {core: between.bind(between.arguments(core)) for core in self._devices}
        return StagedCollectives(mesh_shape, process_of_core, bound)

    def _function(self, segment: Segment) -> TracedFunction:
        """The traced function of a segment. Segments with equal likeness keys share one, so that equal layers are
        traced once."""
        if segment not in self._functions:
            key = likeness(segment, self.facts)
            function = self._shared.get(key) if key is not None else None
            function = function or self._traced(segment)
            if key is not None and not function.may_fail:  # an error must name the segment
                self._shared[key] = function
            self._functions[segment] = function
        return self._functions[segment]

    def _traced(self, segment: Segment) -> TracedFunction:
        outputs = {f.name: f.output for f in self._plan.feeds}
        values = [*(outputs[name] for name in segment.feeds), *segment.entering]
        signature = [tf.TensorSpec([self._plan.mesh_shape.ndims], tf.int32)]
        signature += [tf.TensorSpec(v.slice_shape, v.dtype) for v in values]
        signature += [tf.TensorSpec([], tf.resource) for _ in segment.variables]
        body = functools.partial(self._core_program, segment)
        # If it were inlined, TensorFlow would place a function again for each core that calls it.
        traced = tf.function(body, autograph=False, experimental_attributes=NOT_INLINED)
        with tf.init_scope():
            return TracedFunction(traced.get_concrete_function(*signature))

    def _core_program(self, segment: Segment, coordinates: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        self.traces[segment] += 1
        given = iter(arguments)
        feeds = {name: next(given) for name in segment.feeds}
        entering = {v: next(given) for v in segment.entering}
        variables = SlicesByHandle(dict(zip(segment.variables, given, strict=True)))
        core = TracedCore(self._plan, coordinates, is_cpu=True)
        program = CoreProgram(self.facts, core, self._no_collectives, variables, self._work)
        program.slices.update(entering)
        program.emit_part(segment.instructions, feeds)
        return program.finish() if segment.ends_program else [x for v in segment.leaving for x in program.tensors(v, v)]


def is_worth_tracing(plan: Plan) -> bool:
    """Whether a program that runs once is worth tracing: it has loops or branches, several processes, or large values.

    The cores of a traced program work at the same time. The cores of an untraced program take turns.
    """
    is_plain = not plan.process_of_core and not any(isinstance(i, Loop | Branch) for i in plan.instructions)
    made = sum(v.slice_bytes for i in plan.instructions for v in i.outputs) * plan.mesh_shape.size
    return not is_plain or made > UNTRACED_BYTES


def _crosses(step: CollectiveStep, plan: Plan) -> bool:
    """Whether a collective moves data between processes."""
    axes = step.axes if step.destinations is None else plan.mesh_shape.dimension_names
    return bool(plan.process_of_core) and bool(crossing_axes(axes, plan.mesh_shape, plan.process_of_core))
