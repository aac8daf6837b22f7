"""Emits loops that XLA compiles on virtual CPUs. The loop of decoding has hundreds of small operations in an iteration.

A loop without collectives becomes one function that each core calls. Loops over layers inside it are unrolled. The
stacks that they slice or build, such as the caches of all layers, are carried in parts, because XLA would copy a whole
stack in every iteration.

A loop with collectives becomes one function for all cores of the process, in which the collectives are arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.emit.control_flow import emit_loop, emit_unrolled
from meshtf.lowering.emit.core import TracedCore, known_coordinates
from meshtf.lowering.emit.core_program import CoreProgram, LocalWork
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByValue
from meshtf.lowering.processors.all_cores import AllCores
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.segments import Segment, communicates, segments_of_body
from meshtf.mesh_impl.spmd.shared_memory_collectives import SharedMemoryCollectives
from meshtf.planning.plan import Carried, Instruction, Loop, Value, walk
from meshtf.thresholds import MOST_UNROLLED


def emit_compiled(program: CoreProgram, loop: Loop) -> None:
    """Emits a loop without collectives into a program, as one function that XLA compiles.

    Args:
      program: one core's program. It holds the loop's results afterwards, if something reads them.
      loop: a loop of its plan.
    """
    in_parts = _entering_in_parts(loop)
    given = {v: program.parts(v) if v in in_parts else program.tensors(v, v) for v in loop.inputs}
    results = program.read_of(loop)

    def run(given: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        tensors = dict(zip(loop.inputs, map(list, given), strict=True))
        inner = program.compiled(
            tensors, in_parts | {c.entering for c in _carried_in_parts(loop)}, LocalWork(loop=_emit_loop_inside)
        )
        emit_loop(inner, loop)
        return [x for v in results for x in inner.tensors(v, v)]

    made: Any = tf.function(run, jit_compile=True, autograph=False)(list(given.values()))
    program.slices.update(zip(results, made, strict=True))


def _emit_loop_inside(program: CoreProgram, loop: Loop) -> None:
    """Emits a loop inside one that XLA compiles."""
    if _is_unrollable(loop):
        emit_unrolled(program, loop)
    else:
        emit_loop(program, loop)


def _is_unrollable(loop: Loop) -> bool:
    """Whether the number of iterations is known, and all iterations together have few enough instructions to unroll."""
    known = loop.count is None and loop.condition is None and loop.is_bounded and loop.length > 0
    return known and sum(times for _, times in walk(loop.body, loop.length)) <= MOST_UNROLLED


def _entering_in_parts(loop: Loop) -> frozenset[Value]:
    """The loop's inputs that it reads one slice at a time, along their first dimension."""
    loops = [i for i, _ in walk(loop.body) if isinstance(i, Loop) and _is_unrollable(i)]
    taken = {s.whole for inner in loops for s in inner.sliced if s.dim == 0}
    return frozenset(loop.inputs) & (taken | {c.initial for c in _carried_in_parts(loop)})


def _carried_in_parts(loop: Loop) -> list[Carried]:
    """The values that the loop carries and that an unrolled loop inside it builds part by part, such as caches of
    layers."""
    made = {s.whole for i in loop.body if isinstance(i, Loop) and _is_unrollable(i) for s in i.stacked}
    return [c for c in loop.carried if c.leaving in made]


class LoopOfAllCores:
    """A loop with collectives as one function that XLA compiles for all cores of the process.

    Args:
      facts: facts of the plan.
      differing: the mesh axes along which its slices differ.
      loop: a loop of the plan that is inside no other loop.
    """

    def __init__(self, facts: PlanFacts, differing: DifferingSlices, loop: Loop) -> None:
        self._loop = loop
        self._segments = _InlineSegments(facts, differing)
        self._results = [v for v in loop.outputs if v in facts.read]

    def run(self, cores: AllCores) -> None:
        """Emits a call of the function. The cores hold the loop's results afterwards."""
        loop = self._loop
        given = [cores.tensors(v, v) for v in loop.inputs]
        made: Any = tf.function(self._emitted, jit_compile=True, autograph=False)(given, list(cores.held))
        for value, tensors in zip(self._results, made, strict=True):
            cores.give(value, tensors, value)

    def _emitted(self, given: Sequence[Sequence[tf.Tensor]], numbers: Sequence[int]) -> list[list[tf.Tensor]]:
        cores = AllCores(self._segments, {core: {} for core in numbers})
        for value, tensors in zip(self._loop.inputs, given, strict=True):
            cores.give(value, tensors, value)
        emit_loop(cores, self._loop)
        return [cores.tensors(v, v) for v in self._results]


class _InlineSegments:
    """The `SegmentWork` inside one function, into which the work of the cores is emitted one after the other."""

    batched = None

    def __init__(self, facts: PlanFacts, differing: DifferingSlices) -> None:
        self.facts, self.differing = facts, differing
        self.collectives = SharedMemoryCollectives(facts.plan.mesh_shape)

    def segments_of_body(self, instructions: Sequence[Instruction], results: Sequence[Value]) -> Sequence[Segment]:
        return segments_of_body(instructions, results, self.facts, communicates, self.differing)

    def run_segment(self, segment: Segment, core: int, held: Mapping[Value, tf.Tensor]) -> Sequence[tf.Tensor]:
        plan = self.facts.plan
        program = CoreProgram(
            self.facts, TracedCore(plan, known_coordinates(core, plan)), self.collectives, SlicesByValue({})
        )
        program.slices.update((v, held[v]) for v in segment.entering)
        program.emit(segment.instructions)
        return [x for v in segment.leaving for x in program.tensors(v, v)]

    def loop(self, cores: AllCores, loop: Loop) -> None:
        emit_loop(cores, loop)
