"""Stochastic gradient descent, with momentum and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_fractions, check_kinds
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.schedules.rates import rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates


@dataclasses.dataclass(frozen=True)
class SgdOptimizer(Optimizer):
    """w <- w - learning_rate * g.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.SgdOptimizer(0.1).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w']
    """

    learning_rate: Rate

    def __post_init__(self) -> None:
        check_rates(self, "learning_rate")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "sgd")
        return [p.value - p.grad * p.scalar(rate) for p in parameters]


@dataclasses.dataclass(frozen=True)
class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum (Polyak 1964), or with Nesterov's look ahead (1983, as in Sutskever et al. 2013).

        v <- momentum * v + learning_rate * g
        w <- w - v                                          or, with nesterov
        w <- w - (momentum * v + learning_rate * g)

    The state of a variable w is in `w/momentum_v`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      momentum: the share of its speed that a weight keeps from step to step.
      nesterov: whether to take Nesterov's step, the last line above.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.MomentumOptimizer(0.1, momentum=0.9, nesterov=True).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'w/momentum_v']
    """

    learning_rate: Rate
    momentum: float
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_fractions(self, "momentum")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "momentum")
        return [self._moved(p, p.grad * p.scalar(rate)) for p in parameters]

    def _moved(self, parameter: Parameter, change: mtf.Tensor) -> mtf.Tensor:
        before = parameter.slot("momentum_v")
        velocity = mtf.assign(before, before * self.momentum + change)
        return parameter.value - (velocity * self.momentum + change if self.nesterov else velocity)
