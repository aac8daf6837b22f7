"""Evaluates the conditions of some loops only every few iterations, on GPUs.

A GPU's host starts every iteration. So it waits for the value of the condition, while the GPU has nothing to do. It
need not wait where XLA knows the number of iterations. A loop over tokens, which ends when all sequences have, becomes

    while a sequence goes on:
        repeat ITERATIONS_PER_CHECK times:
            add a token to each sequence

The iterations after the last one add nothing, which the loop promises by `may_overrun`.
"""

from __future__ import annotations

from meshtf.lowering.emit.core_program import CoreProgram
from meshtf.planning.plan import Loop
from meshtf.thresholds import ITERATIONS_PER_CHECK, QUICK_ITERATION_BYTES


def iterations_per_check(program: CoreProgram, loop: Loop, platform: str) -> int:
    """The number of iterations of a loop between two evaluations of its condition.

    It is more than one if the platform's host reads the condition, and iterations are so quick that reading takes much
    of the time.
    """
    if platform != "cuda" or not loop.may_overrun or loop.trips in program.read_of(loop):
        return 1
    is_quick = sum(v.slice_bytes for v in loop.inputs) <= QUICK_ITERATION_BYTES
    return min(ITERATIONS_PER_CHECK, loop.length) if is_quick else 1
