"""Stochastic gradient descent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.optimize.optimizer import Optimizer


@dataclasses.dataclass(frozen=True)
class SgdOptimizer(Optimizer):
    """w <- w - learning_rate * g.

    Attributes:
      learning_rate: a number, or a scalar of the program.
    """

    learning_rate: float | mtf.Tensor

    def __post_init__(self) -> None:
        self._check_are_scalars("learning_rate")

    def apply_grads(self, grads: Sequence[mtf.Tensor], variables: Sequence[mtf.Variable]) -> list[mtf.Tensor]:
        return [
            mtf.assign_sub(variable, grad * self.learning_rate) for grad, variable in zip(grads, variables, strict=True)
        ]
