"""Which loops become one function compiled by XLA, of those whose writer asks for it, and why the others do not.

The loop of decoding is hundreds of small operations in an iteration, each of which TensorFlow starts by itself, at some
microseconds. Compiled, a whole loop is one operation. It must not communicate, since collectives are TensorFlow's, and
each core compiles its own: so it has to have iterations enough.

A `generate` of length:80 on one core asks, has 80 iterations at most, and is compiled. On a mesh that splits its batch,
the condition is a sum over cores, and it stays as it is: the report names that collective. Where XLA compiles the
program as a whole (`TpuMeshImpl`), loops are a part of it, collectives and all.
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
from meshtf.planning.process_spans import ProcessOfCore


def compile_loops(plan: Plan, options: PassOptions) -> Plan:
    """The plan in which each loop that asks to be compiled is, or says why not."""
    if not any(isinstance(i, Loop) and i.compilation is not None for i, _ in walk(plan.instructions)):
        return plan
    decide = functools.partial(_decided, options, _most_cores_of_a_process(plan.mesh_shape.size, plan.process_of_core))
    return dataclasses.replace(plan, instructions=decide(plan.instructions))


def _decided(options: PassOptions, cores: int, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    changed = []
    for instruction in instructions:
        if isinstance(instruction, Loop) and instruction.compilation is not None:
            refusal = _refusal(instruction, options, cores)
            instruction = dataclasses.replace(instruction, compilation=LoopCompilation(refusal))
        changed.append(with_nested_changed(instruction, functools.partial(_decided, options, cores)))
    return tuple(changed)


def _refusal(loop: Loop, options: PassOptions, cores: int) -> str:
    """Why a loop is not compiled; empty where it is."""
    if options.compiles_programs:
        return ""
    if not options.compile_loops:
        return "compile_loops=False"
    inside = [i for i, _ in walk([loop])]
    collectives = [i for i in inside if isinstance(i, Collective)]
    if collectives:
        first, others = collectives[0], len(collectives) - 1
        return f"it has the {first.step.kind} of {first.operation.name}" + (f", and {others} more" if others else "")
    for instruction in inside:
        if reason := instruction.operation.why_not_compiled:
            return f"{instruction.operation.name} {reason}"
        if isinstance(instruction, Compute) and instruction.facts.draws_random_bits:
            # Their hundred integer operations, joined with others, took XLA from seconds to many minutes.
            return f"{instruction.operation.name} draws random bits, which are compiled by themselves"
    if loop.stacked:
        return "a gradient reads what its iterations make"
    least = options.least_compiled_iterations * cores
    if not loop.is_bounded:
        return "nobody knows how many iterations it may have"
    if loop.length < least:
        return f"it has at most {loop.length} iterations, and compiling it pays from {least} on"
    return ""


def _most_cores_of_a_process(cores: int, process_of_core: ProcessOfCore) -> int:
    """Each device compiles its own, one after the other in a process."""
    return max(map(process_of_core.count, set(process_of_core)), default=cores)
