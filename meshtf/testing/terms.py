"""How many roundings lie on the way to the results of a program."""

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
"""Dtypes of this unit roundoff or a larger one are computed with in float32, and rounded once."""


def terms_of(plan: Plan, dtype: Any = tf.float32) -> int:
    """The roundings on the longest way through a plan: the `terms` of `mtf.testing.rounding_bound` for its results.

    Work of f operations for each element that it gives counts as a sum of f terms and an elementwise function; in
    bfloat16 and float16, where that is done in float32, as one rounding. A sum over n cores counts as n terms, and a
    loop as its body as many times as it runs at most (once, where nobody knows). Plan the program for one core: then
    each sum is whole.

    Args:
      plan: as `mtf.testing.plan` gives it, or `mtf.testing.interpret`.
      dtype: of the bound; what is done more precisely counts nothing beside it.
    """
    return max(1, _longest(plan.instructions, _Counting(plan.mesh_shape, unit_roundoff(dtype))))


@dataclasses.dataclass(frozen=True)
class _Counting:
    mesh_shape: Shape
    unit: float

    def counts(self, value: Value) -> bool:
        return bool(unit_roundoff(value.dtype)) and unit_roundoff(value.dtype) >= self.unit


def _longest(instructions: Sequence[Instruction], counting: _Counting) -> int:
    """Over all values that the instructions make. Those from outside are where they start."""
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
