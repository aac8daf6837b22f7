"""Which loops become one function compiled by XLA, of those whose writer asks for it, and why the others do not.

The loop of decoding is hundreds of small operations in an iteration, each of which TensorFlow starts by itself, at some
microseconds. Compiled, a whole loop is one operation. It has to have iterations enough. TensorFlow's collectives cannot
be in it; where all cores compute on one device, as the virtual CPUs of a process do, a loop of the program's own, not
inside another, is compiled for all cores at once, and its collectives are arithmetic.

A `generate` of length:80 asks, has 80 iterations at most, and is compiled on one core, and on eight virtual CPUs that
split its batch and its model. In two processes of four its condition is a sum over cores, and it stays as it is: the
report names that collective. Where XLA compiles the program as a whole (`TpuMeshImpl`), loops are a part of it,
collectives and all.
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
    """The plan in which each loop that asks to be compiled is, or says why not."""
    if not any(isinstance(i, Loop) and i.compilation is not None for i, _ in walk(plan.instructions)):
        return plan
    cores = plan.mesh_shape.size if options.computes_on_one_device else 1
    top = [_decided(options, instruction, cores) for instruction in plan.instructions]
    inside = functools.partial(_all_decided, options)
    return dataclasses.replace(plan, instructions=tuple(with_nested_changed(i, inside) for i in top))


def _all_decided(options: PassOptions, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Of those inside of others, which each core compiles for itself."""
    inside = functools.partial(_all_decided, options)
    return tuple(with_nested_changed(_decided(options, i, 1), inside) for i in instructions)


def _decided(options: PassOptions, instruction: Instruction, cores: int) -> Instruction:
    """What it is compiled as, if it is a loop that asks for it: for so many cores at once, if there are collectives."""
    if not isinstance(instruction, Loop) or instruction.compilation is None:
        return instruction
    refusal = _refusal(instruction, options, cores)
    is_joint = not (refusal or options.compiles_programs) and bool(_collectives(instruction))
    return dataclasses.replace(instruction, compilation=LoopCompilation(refusal, is_joint))


def _refusal(loop: Loop, options: PassOptions, cores: int) -> str:
    """Why a loop is not compiled; empty where it is."""
    if options.compiles_programs:
        return ""
    if not options.compile_loops:
        return "compile_loops=False"
    if not options.computes_on_processors:
        return "its cores are no virtual CPUs that share their memory"
    collectives = _collectives(loop)
    if collectives and cores == 1:
        first, others = collectives[0], len(collectives) - 1
        return f"it has the {first.step.kind} of {first.operation.name}" + (f", and {others} more" if others else "")
    for instruction, _ in walk([loop]):
        if reason := instruction.operation.why_not_compiled:
            return f"{instruction.operation.name} {reason}"
        if isinstance(instruction, Compute) and instruction.facts.draws_random_bits:
            # Joined with what reads the bits, as the index of the largest of 8, they keep LLVM without end: it looks
            # there for a checksum. TensorFlow takes LLVM's options, by which it would not, from XLA_FLAGS alone.
            return f"{instruction.operation.name} draws random bits, which are compiled by themselves"
    if loop.stacked:
        return "a gradient reads what its iterations make"
    if not loop.is_bounded:
        return "nobody knows how many iterations it may have"
    least = options.least_compiled_iterations
    if loop.length < least:
        return f"it has at most {loop.length} iterations, and compiling it pays from {least} on"
    return ""


def _collectives(loop: Loop) -> list[Collective]:
    return [i for i, _ in walk([loop]) if isinstance(i, Collective)]
