"""Counts the roundings that lead to the results of a program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import axes_size
from meshtf.planning.plan import Branch, Collective, Compute, Instruction, Loop, Plan, Value
from meshtf.testing.rounding import FUNCTION_TERMS, unit_roundoff

_NARROW = 2.0**-11
"""Dtypes with at least this unit roundoff are computed in float32, and rounded once."""


def terms_of(plan: Plan, dtype: Any = tf.float32) -> int:
    """Counts the roundings along the longest path through a plan, for the `terms` of `mtf.testing.rounding_bound`.

    Work with f operations for each element of its result counts as a sum of f terms and an elementwise function. In
    bfloat16 and float16 such work is done in float32, and counts as one rounding. A sum over n cores counts as n terms.
    A loop counts as its body times the most iterations (once if that is unknown). Plan the program for one core, so
    that no sum is divided.

    Args:
      plan: a plan from `mtf.testing.plan` or `mtf.testing.interpret`.
      dtype: the dtype of the bound. Work in a more precise dtype counts as 0.
    """
    return max(1, _longest(plan.instructions, _Counting(plan.mesh_shape, unit_roundoff(dtype))))


@dataclasses.dataclass(frozen=True)
class _Counting:
    mesh_shape: Shape
    unit: float

    def counts(self, value: Value) -> bool:
        return bool(unit_roundoff(value.dtype)) and unit_roundoff(value.dtype) >= self.unit


def _longest(instructions: Sequence[Instruction], counting: _Counting) -> int:
    """Returns the roundings along the longest path to a value of these instructions. Values from outside count as 0."""
    depths: dict[Value, int] = {}
    for instruction in instructions:
        before = max((depths.get(v, 0) for v in instruction.inputs), default=0)
        depths.update(dict.fromkeys(instruction.outputs, before + _own(instruction, counting)))
    return max(depths.values(), default=0)


def _own(instruction: Instruction, counting: _Counting) -> int:
    if isinstance(instruction, Compute):
        return _of_compute(instruction, counting)
    if isinstance(instruction, Collective):
        is_sum = instruction.step.reduction is not None and counting.counts(instruction.output)
        return axes_size(instruction.step.axes, counting.mesh_shape) if is_sum else 0
    if isinstance(instruction, Loop):
        return _longest(instruction.body, counting) * (instruction.length if instruction.is_bounded else 1)
    if isinstance(instruction, Branch):
        return max(_longest(instruction.if_true, counting), _longest(instruction.if_false, counting))
    return 0


def _of_compute(compute: Compute, counting: _Counting) -> int:
    rounded = [v for v in compute.outputs if counting.counts(v)]
    if not rounded or not compute.flops:
        return 0
    if all(unit_roundoff(v.dtype) >= _NARROW for v in rounded):
        return 1
    return FUNCTION_TERMS + -(-compute.flops // max(1, min(math.prod(v.slice_shape) for v in rounded)))
