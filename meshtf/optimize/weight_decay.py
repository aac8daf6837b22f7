"""Weight decay: which weights are decayed, and by how much; and an optimizer that adds it to any other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.optimize._name_patterns import check_patterns, check_patterns_match, is_found_by
from meshtf.optimize.field_checks import check_are_optimizers
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.schedules.rates import rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates


@dataclasses.dataclass(frozen=True)
class WeightDecay:
    """Decays weights by the share `rate`, except those whose names match a regular expression of `exclude`."""

    rate: float
    exclude: Sequence[str] = ()

    @classmethod
    def checked(
        cls, owner: object, parameters: Sequence[Parameter], rate: float, exclude: Sequence[str]
    ) -> WeightDecay:
        """The weight decay of an optimizer's parameters.

        Raises:
          GraphError: an expression matches no variable.
        """
        check_patterns_match(owner, exclude, parameters[0].variable.graph)
        return cls(rate, exclude)

    def share(self, learning_rate: mtf.Tensor) -> mtf.Tensor:
        """The share of a weight that a step subtracts, if the learning rate multiplies the rate of decay."""
        return learning_rate * self.rate

    def added_to(self, change: mtf.Tensor, parameter: Parameter, share: mtf.Tensor | None = None) -> mtf.Tensor:
        """change + share * weight, or the change alone if the weight is not decayed.

        By default the share is the rate.
        """
        if not self.rate or is_found_by(self.exclude, parameter.name):
            return change
        return change + parameter.value * (self.rate if share is None else parameter.scalar(share))


@dataclasses.dataclass(frozen=True)
class WeightDecayOptimizer(Optimizer):
    """Adds weight decay to another optimizer: w <- (the optimizer's new w) - rate * w.

    The decay is decoupled, as in Loshchilov & Hutter (2019): the rate is per step, whatever the learning rate. AdamW,
    LAMB and Lion have a weight decay of their own, which the learning rate multiplies.

    Attributes:
      optimizer: updates the weights.
      rate: the share of a weight that a step subtracts: a number, a scalar of the program, or a schedule.
      exclude: regular expressions; variables whose names match one of them are not decayed.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> sgd = mtf.optimize.SgdOptimizer(0.1)
      >>> mtf.optimize.WeightDecayOptimizer(sgd, rate=1e-4).minimize(loss)
      [assign [hidden:8] float32]
    """

    optimizer: Optimizer
    rate: Rate
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_are_optimizers(self, "optimizer", [self.optimizer])
        check_rates(self, "rate")
        check_patterns(self, "exclude", self.exclude)

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_patterns_match(self, self.exclude, parameters[0].variable.graph)
        rate = rate_now(self.rate, parameters[0].variable.mesh, "weight_decay", "rate")
        return [
            new if new is p.value or is_found_by(self.exclude, p.name) else new - p.value * p.scalar(rate)
            for p, new in zip(parameters, self.optimizer.update(parameters), strict=True)
        ]
