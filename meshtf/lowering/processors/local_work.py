"""The local work of one virtual CPU, which TensorFlow runs operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.emit.control_flow import Beginning, Tensors, emit_loop
from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram, LocalWork
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.compiled_loops import emit_compiled
from meshtf.ops.indexing.replaced_rows import ReplacedRows
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.local_work.processor_work import ProcessorWork
from meshtf.planning.plan import Carried, Compute, Loop


def processor_work(facts: PlanFacts, *, compiles_loops: bool) -> LocalWork:
    """The local work of virtual CPUs: values that a loop owns change in place, and loops are compiled on request.

    Args:
      facts: facts of the plan.
      compiles_loops: whether loops whose writers request it are compiled.
    """

    def compute(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> Any:
        emit = instruction.emit
        if isinstance(emit, AddToPart | Zeros):
            return emit.in_place(*slices)
        if isinstance(emit, ReplacedRows) and instruction in facts.rows_in_place:
            return emit.in_place(core, *slices)
        if isinstance(emit, ProcessorWork):
            return emit.on_processors(core, *slices)
        return emit(core, *slices)

    def loop(program: CoreProgram, loop: Loop) -> None:
        if compiles_loops and loop.compilation is not None and loop.compilation.is_of_each_core:
            emit_compiled(program, loop)
        else:
            emit_loop(program, loop, begins_with(facts))

    return LocalWork(compute, loop)


def begins_with(facts: PlanFacts) -> Beginning:
    """Copies the initial values that a loop overwrites. Others, such as variables, may hold the originals."""

    def begin(carried: Carried, tensors: Tensors) -> Tensors:
        if carried.entering not in facts.own_memory:
            return tensors
        return [tf.raw_ops.DeepCopy(x=x) for x in tensors]

    return begin
