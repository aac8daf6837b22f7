"""Optimizers for weights in bfloat16 or float16, whose updates may be smaller than the weights' last digit.

bfloat16 has 8 significant bits, so the next number after 1.0 is 1.0078. An update of 0.001 would be rounded away at
every step. Master weights are a float32 copy that adds up such updates. Stochastic rounding needs no copy: 1.001
becomes 1.0078 with probability 0.128, and 1.0 otherwise, which is right on average.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds
from meshtf.ops.algebra.casting import before_cast
from meshtf.ops.random.stochastic_rounding import rounded_to_bfloat16
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter

_MASTER = "master"
_ROUNDING = {tf.bfloat16: (2.0**-8, 0.0), tf.float16: (2.0**-11, 2.0**-24)}
"""Bounds on the change of a number that is rounded: relative to it, and of the smallest numbers. bfloat16 has the
exponents of float32, so its smallest numbers need no bound of their own."""


@dataclasses.dataclass(frozen=True)
class MasterWeightsOptimizer(Optimizer):
    """Runs another optimizer on float32 copies of weights of 16 bits (Micikevicius et al. 2018).

    The copy of a variable w is in `w/master`, and w itself is the copy, rounded. If they differ by more than rounding,
    w was set from outside (at the start, or from a checkpoint), and the copy is made anew from w. Weights of float32
    or more are updated without a copy.

    Attributes:
      optimizer: updates the copies.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8", tf.bfloat16)
      >>> master = mtf.optimize.MasterWeightsOptimizer(mtf.optimize.SgdOptimizer(0.1))
      >>> _ = master.minimize(mtf.reduce_sum(mtf.square(w)))
      >>> [(name, v.slice_dtype.name) for name, v in mesh.graph.variables.items()]
      [('w', 'bfloat16'), ('w/master', 'float32')]
    """

    optimizer: Optimizer

    def __post_init__(self) -> None:
        check_kinds(self)

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        copied = [_with_master(p) if _is_narrow(p) else p for p in parameters]
        updated = self.optimizer.update(copied)
        for parameter, copy, new in zip(parameters, copied, updated, strict=True):
            if copy is not parameter and new is not copy.value:
                mtf.assign(parameter.slot(_MASTER), new)
        return [
            parameter.value if new is copy.value else new
            for parameter, copy, new in zip(parameters, copied, updated, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class StochasticRoundingOptimizer(Optimizer):
    """Runs another optimizer and rounds its new bfloat16 weights up or down at random, so that they are right on
    average.

    A number x between the bfloat16 numbers a and b becomes b with probability (x - a) / (b - a) (Gupta et al. 2015).
    Updates smaller than the last digit are then not lost, and no copies are needed. The random bits are the same under
    every layout, and the same in a scan as in its unrolled layers. Variables of other dtypes are stored as usual, and
    so are those of which `MasterWeightsOptimizer` keeps copies.

    Attributes:
      optimizer: updates the weights.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8", tf.bfloat16)
      >>> rounding = mtf.optimize.StochasticRoundingOptimizer(mtf.optimize.SgdOptimizer(0.1))
      >>> rounding.minimize(mtf.reduce_sum(mtf.square(w)))
      [assign [hidden:8] bfloat16]
    """

    optimizer: Optimizer

    def __post_init__(self) -> None:
        check_kinds(self)

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        """The weights after one step.

        Raises:
          GraphError: the other optimizer updates bfloat16 weights as they are stored, so that they are rounded already.
        """
        return [
            _rounded(new, p) if _is_bfloat16(p) and not _has_copy(p) and new is not p.value else new
            for p, new in zip(parameters, self.optimizer.update(parameters), strict=True)
        ]


def _rounded(new: mtf.Tensor, parameter: Parameter) -> mtf.Tensor:
    if before_cast(new).dtype == tf.bfloat16:
        raise GraphError(
            f"StochasticRoundingOptimizer has nothing to round in {parameter.name}: its new rows are bfloat16 already; "
            f"keep this table in float32, or its copy, with MasterWeightsOptimizer"
        )
    return rounded_to_bfloat16(new, parameter.variable)


def optimizer_rounds(optimizer: Optimizer, parameter: Parameter) -> bool:
    """Whether the optimizer rounds the weight itself, so that nothing may change the weight after it."""
    is_master = isinstance(optimizer, MasterWeightsOptimizer) and _is_narrow(parameter)
    return is_master or (isinstance(optimizer, StochasticRoundingOptimizer) and _is_bfloat16(parameter))


def _is_bfloat16(parameter: Parameter) -> bool:
    return parameter.variable.slice_dtype == tf.bfloat16


def _has_copy(parameter: Parameter) -> bool:
    # A copy is made anew if the weight differs by more than rounding to the nearest, and random rounding often does.
    return f"{parameter.name}/{_MASTER}" in parameter.variable.graph.variables


def _is_narrow(parameter: Parameter) -> bool:
    return parameter.variable.slice_dtype != parameter.dtype


def _with_master(parameter: Parameter) -> Parameter:
    master, stored = parameter.slot(_MASTER), parameter.value
    # The test is a distance, not "equal after rounding": a compiler may leave out a cast to fewer digits and back.
    relative, smallest = _ROUNDING[parameter.variable.slice_dtype]
    is_rounded = mtf.less_equal(mtf.abs(master - stored), mtf.abs(stored) * relative + smallest)
    return dataclasses.replace(parameter, value=mtf.where(is_rounded, master, stored))
