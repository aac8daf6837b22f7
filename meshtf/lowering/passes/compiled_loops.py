"""Decides which loops XLA compiles into one function each, and says why the others are not compiled.

A loop is a candidate if its writer asks for it. An iteration of decoding is hundreds of small operations, and
TensorFlow takes some microseconds to start each of them. A compiled loop is one operation. It must have enough
iterations to pay for its compilation. It cannot contain TensorFlow's collectives. Where all cores compute on one
device, as the virtual CPUs of a process do, a loop outside all others is compiled for all cores at once, and its
collectives become arithmetic.

For example, `generate` with length:80 asks for it and has at most 80 iterations. It is compiled on one core, and on
eight virtual CPUs that split its batch and its model. In two processes of four cores its condition is a sum over cores.
There it is not compiled, and the report names that collective. Where XLA compiles the whole program (`TpuMeshImpl`),
every loop is a part of it with its collectives.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import (
    Collective,
    Compute,
    Instruction,
    Loop,
    LoopCompilation,
    Plan,
    walk,
    with_nested_changed,
)


def compile_loops(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which each loop that asks to be compiled is marked as compiled, or says why it is not."""
    if not any(isinstance(i, Loop) and i.compilation is not None for i, _ in walk(plan.instructions)):
        return plan
    cores = plan.mesh_shape.size if options.computes_on_one_device else 1
    top = [_decided(options, instruction, cores) for instruction in plan.instructions]
    inside = functools.partial(_all_decided, options)
    return dataclasses.replace(plan, instructions=tuple(with_nested_changed(i, inside) for i in top))


def _all_decided(options: PassOptions, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Decides for the loops inside other loops and branches, which each core compiles for itself."""
    inside = functools.partial(_all_decided, options)
    return tuple(with_nested_changed(_decided(options, i, 1), inside) for i in instructions)


def _decided(options: PassOptions, instruction: Instruction, cores: int) -> Instruction:
    """Decides how a loop that asks for compilation is compiled. `cores` is the number of cores that one function with
    collectives may serve.
    """
    if not isinstance(instruction, Loop) or instruction.compilation is None:
        return instruction
    refusal = _refusal(instruction, options, cores)
    is_joint = not (refusal or options.compiles_programs) and bool(_collectives(instruction))
    return dataclasses.replace(instruction, compilation=LoopCompilation(refusal, is_joint))


def _refusal(loop: Loop, options: PassOptions, cores: int) -> str:
    """Returns why a loop is not compiled, or an empty text if it is."""
    if options.compiles_programs:
        return ""
    if options.refuses_compiled_loops:
        return options.refuses_compiled_loops
    collectives = _collectives(loop)
    if collectives and cores == 1:
        first, others = collectives[0], len(collectives) - 1
        return f"it has the {first.step.kind} of {first.operation.name}" + (f", and {others} more" if others else "")
    for instruction, _ in walk([loop]):
        if reason := instruction.operation.why_not_compiled:
            return f"{instruction.operation.name} {reason}"
        if isinstance(instruction, Compute) and instruction.facts.draws_random_bits:
            # If XLA fuses random bits with their reader, such as the index of the largest of 8, LLVM searches the code
            # for a checksum and never ends. Only XLA_FLAGS could pass LLVM the option that stops this search.
            return f"{instruction.operation.name} draws random bits, which are compiled by themselves"
    if loop.stacked:
        return "a gradient reads what its iterations make"
    if not loop.is_bounded:
        return "it has no known limit to its iterations"
    least = options.least_compiled_iterations
    if loop.length < least:
        return f"it has at most {loop.length} iterations, and compiling pays only from {least} on"
    return ""


def _collectives(loop: Loop) -> list[Collective]:
    return [i for i, _ in walk([loop]) if isinstance(i, Collective)]
