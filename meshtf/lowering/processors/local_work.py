"""How one virtual CPU does its own work, where TensorFlow runs it operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.emit.control_flow import emit_loop
from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram, LocalWork
from meshtf.lowering.processors.compiled_loops import emit_compiled
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.local_work.processor_work import ProcessorWork
from meshtf.planning.plan import Compute, Loop


def processor_work(*, compiles_loops: bool) -> LocalWork:
    """The work of virtual CPUs: sums grow in their own memory, and loops that ask for it are compiled.

    Args:
      compiles_loops: whether loops are compiled that ask for it.
    """
    return LocalWork(_compute, _loop) if compiles_loops else LocalWork(_compute)


def _compute(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> Any:
    emit = instruction.emit
    if isinstance(emit, AddToPart | Zeros):
        return emit.in_place(*slices)
    if isinstance(emit, ProcessorWork):
        return emit.on_processors(core, *slices)
    return emit(core, *slices)


def _loop(program: CoreProgram, loop: Loop) -> None:
    if loop.compilation is not None and loop.compilation.is_of_each_core:
        emit_compiled(program, loop)
    else:
        emit_loop(program, loop)
