"""Weights kept in bfloat16 or float16 that learn from updates smaller than their last digit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.stochastic_rounding import rounded_to_bfloat16
from meshtf.optimize.field_checks import check_are_optimizers
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter

_ROUNDING = 2.0**-8
"""More than by what rounding to bfloat16 or float16 changes a number, relative to it."""
_SMALLEST = 2.0**-24
"""More than by what rounding to float16 changes the smallest numbers."""


@dataclasses.dataclass(frozen=True)
class MasterWeightsOptimizer(Optimizer):
    """Another optimizer on float32 copies of weights that are stored narrower (Micikevicius et al. 2018).

    The copy of a variable w is in `w/master`; w itself is the copy, rounded. A weight that is not its copy rounded was
    set by somebody else (at the start, or when weights are restored): the copy is then made anew. Wider weights are
    updated as they are.

    Attributes:
      optimizer: moves the copies.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8", tf.bfloat16)
      >>> master = mtf.optimize.MasterWeightsOptimizer(mtf.optimize.SgdOptimizer(0.1))
      >>> _ = master.minimize(mtf.reduce_sum(mtf.square(w)))
      >>> [(name, v.slice_dtype.name) for name, v in mesh.graph.variables.items()]
      [('w', 'bfloat16'), ('w/master', 'float32')]
    """

    optimizer: Optimizer

    def __post_init__(self) -> None:
        check_are_optimizers(self, "optimizer", [self.optimizer])

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        copied = [_with_master(p) if _is_narrow(p) else p for p in parameters]
        updated = self.optimizer.update(copied)
        for parameter, copy, new in zip(parameters, copied, updated, strict=True):
            if copy is not parameter and new is not copy.value:
                mtf.assign(parameter.slot("master"), new)
        return [
            parameter.value if new is copy.value else new
            for parameter, copy, new in zip(parameters, copied, updated, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class StochasticRoundingOptimizer(Optimizer):
    """Another optimizer, whose new bfloat16 weights are rounded up or down at random, right in the mean.

    A number between two that bfloat16 has becomes the upper one with the probability of its part of the way (Gupta et
    al. 2015): updates smaller than the last digit are not lost, without copies. The random bits are the program's, the
    same under every layout, and in a scan as in its layers unrolled. Variables of other dtypes are stored as always.

    Attributes:
      optimizer: moves the weights.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8", tf.bfloat16)
      >>> rounding = mtf.optimize.StochasticRoundingOptimizer(mtf.optimize.SgdOptimizer(0.1))
      >>> rounding.minimize(mtf.reduce_sum(mtf.square(w)))
      [assign [hidden:8] bfloat16]
    """

    optimizer: Optimizer

    def __post_init__(self) -> None:
        check_are_optimizers(self, "optimizer", [self.optimizer])

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        return [
            rounded_to_bfloat16(new, p.variable) if _is_bfloat16(p) and new is not p.value else new
            for p, new in zip(parameters, self.optimizer.update(parameters), strict=True)
        ]


def _is_bfloat16(parameter: Parameter) -> bool:
    return parameter.variable.slice_dtype == tf.bfloat16


def _is_narrow(parameter: Parameter) -> bool:
    return parameter.variable.slice_dtype != parameter.dtype


def _with_master(parameter: Parameter) -> Parameter:
    master, stored = parameter.slot("master"), parameter.value
    # Not "equal after rounding": a compiler may leave out a cast to fewer digits and back.
    is_rounded = mtf.less_equal(mtf.abs(master - stored), mtf.abs(stored) * _ROUNDING + _SMALLEST)
    return dataclasses.replace(parameter, value=mtf.where(is_rounded, master, stored))
