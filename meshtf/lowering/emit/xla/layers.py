"""Emits loops over layers in a program that XLA compiles, unrolled if the plan says so.

The gradient of a layer may recompute values that the forward pass did not keep. In unrolled loops both would be the
same operations on the same values. XLA would do them once and keep the results, and save no memory. So the values that
the forward pass kept are tied to the gradient that enters the layer, and XLA treats them as different values from there
on. JAX does the same in its checkpointing.

A loop over tokens carries the caches of a decoder's layers. If the loop over layers inside it is unrolled, the outer
loop carries each layer's cache separately, since XLA would otherwise copy all caches for every token.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from meshtf.lowering.emit.control_flow import Tensors, emit_loop, emit_unrolled
from meshtf.lowering.emit.core_program import CoreProgram
from meshtf.lowering.emit.xla.rare_checks import iterations_per_check
from meshtf.planning.plan import Feed, Instruction, Loop, Plan, ReadVariable, Value, walk
from meshtf.tensorflow_private.xla_operations import tied_together


def emit_layers_or_loop(program: CoreProgram, loop: Loop, given: Collection[Value], platform: str = "") -> None:
    """Emits a loop into a program, unrolled if it is marked so.

    Args:
      program: the core's program.
      loop: the loop.
      given: values that exist when the program starts, and stay in memory.
      platform: XLA's name of the platform that runs the program; "": any.
    """
    if not is_unrolled(loop):
        emit_loop(program, loop, iterations_per_check=iterations_per_check(program, loop, platform))
        return
    assert loop.unrolling is not None
    if not loop.unrolling.computes_again:
        emit_unrolled(program, loop)
        return
    kept = [s.whole not in given for s in loop.sliced]

    def enter(carried: list[Tensors], rows: list[Tensors]) -> tuple[list[Tensors], list[Tensors]]:
        tied = iter(tied_together([*_flat(carried), *_flat(itertools.compress(rows, kept))]))
        entered = [[next(tied) for _ in own] for own in carried]
        return entered, [[next(tied) for _ in own] if is_kept else own for own, is_kept in zip(rows, kept, strict=True)]

    emit_unrolled(program, loop, enter)


def values_given(plan: Plan) -> frozenset[Value]:
    """The variables and the feeds of a plan."""
    return frozenset(v for i, _ in walk(plan.instructions) if isinstance(i, Feed | ReadVariable) for v in i.outputs)


def carried_in_parts(plan: Plan) -> frozenset[Value]:
    """The values that loops carry, as they enter, if an unrolled loop inside builds their next values part by part."""
    found = set[Value]()
    for instruction, _ in walk(plan.instructions):
        if isinstance(instruction, Loop) and not is_unrolled(instruction):
            made = {s.whole for i in instruction.body if isinstance(i, Loop) and is_unrolled(i) for s in i.stacked}
            found.update(c.entering for c in instruction.carried if c.leaving in made)
    return frozenset(found)


def is_unrolled(instruction: Instruction) -> bool:
    """Whether the instruction is a loop that is emitted layer by layer."""
    return isinstance(instruction, Loop) and instruction.unrolling is not None and instruction.unrolling.is_unrolled


def _flat(lists: Collection[Tensors] | itertools.compress[Tensors]) -> Tensors:
    return [x for own in lists for x in own]
