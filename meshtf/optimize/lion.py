"""Lion: the optimizer whose steps are signs, so that each weight moves by the same distance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_fractions, check_kinds, check_not_negative
from meshtf.optimize._name_patterns import check_patterns
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real
from meshtf.optimize.schedules.rates import rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates
from meshtf.optimize.weight_decay import WeightDecay


@dataclasses.dataclass(frozen=True)
class LionOptimizer(Optimizer):
    """Lion (Chen et al. 2023, algorithm 2): steps of one size, in the direction of the signs of a mean.

        w <- w - learning_rate * (sign(beta_1 m + (1 - beta_1) g) + weight_decay * w)
        m <- beta_2 m + (1 - beta_2) g

    The state of a variable w is in `w/lion_m`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      beta_1: the share of the mean of the gradients in the direction of a step.
      beta_2: decay of that mean, per step.
      weight_decay: the factor of w in the formula above.
      exclude_from_weight_decay: regular expressions; variables whose names match one of them are not decayed.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.LionOptimizer(1e-4, weight_decay=0.1).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'w/lion_m']
    """

    learning_rate: Rate
    beta_1: float = 0.9
    beta_2: float = 0.99
    weight_decay: float = 0.0
    exclude_from_weight_decay: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_patterns(self, "exclude_from_weight_decay", self.exclude_from_weight_decay)
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "weight_decay")
        check_fractions(self, "beta_1", "beta_2")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "lion")
        decay = WeightDecay.checked(self, parameters, self.weight_decay, self.exclude_from_weight_decay)
        return [p.value - decay.added_to(self._signs(p), p) * p.scalar(rate) for p in parameters]

    def _signs(self, parameter: Parameter) -> mtf.Tensor:
        mean = parameter.slot("lion_m")
        change = parameter.grad - mean
        mtf.assign(mean, mean + change * (1 - self.beta_2))
        return mtf.sign(mean + change * (1 - self.beta_1))
