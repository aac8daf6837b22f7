"""Weight decay: which weights are decayed, and by how much; and an optimizer that adds it to any other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds
from meshtf.optimize._name_patterns import check_patterns, check_patterns_match, is_found_by
from meshtf.optimize.low_precision import optimizer_rounds
from meshtf.optimize.moving_average import AVERAGE
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.schedules.rates import rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates

_ROUNDED_BEFORE = """\
WeightDecayOptimizer decays {name}, which is {dtype}, after {inner} has rounded it, so the decay would be lost; \
put it inside: {inner}(WeightDecayOptimizer(...))"""
_AVERAGED_BEFORE = """\
WeightDecayOptimizer decays {name} after MovingAverageOptimizer has averaged it, so {mean} would be a mean of other \
weights; put it inside: MovingAverageOptimizer(WeightDecayOptimizer(...))"""


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
    LAMB and Lion have a weight decay of their own, which the learning rate multiplies. `MasterWeightsOptimizer` and
    `StochasticRoundingOptimizer` round what they store, and `MovingAverageOptimizer` averages it, so put them around
    this optimizer, and not inside.

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
        check_patterns(self, "exclude", self.exclude)
        check_kinds(self)
        check_rates(self, "rate")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        """The weights after one step.

        Raises:
          GraphError: an expression matches no variable; or a weight is rounded or averaged before it is decayed.
        """
        graph = parameters[0].variable.graph
        check_patterns_match(self, self.exclude, graph)
        rate = rate_now(self.rate, parameters[0].variable.mesh, "weight_decay", "rate")
        averaged_before = {p.name for p in parameters if _mean_of(p) in graph.variables}
        updated = self.optimizer.update(parameters)
        return [
            new
            if new is p.value or is_found_by(self.exclude, p.name)
            else self._decayed(p, new, rate, p.name in averaged_before)
            for p, new in zip(parameters, updated, strict=True)
        ]

    def _decayed(self, parameter: Parameter, new: mtf.Tensor, rate: mtf.Tensor, was_averaged: bool) -> mtf.Tensor:
        mean = _mean_of(parameter)
        if not was_averaged and mean in parameter.variable.graph.variables:
            raise GraphError(_AVERAGED_BEFORE.format(name=parameter.name, mean=mean))
        if inner := _rounding_in(self.optimizer, parameter):
            dtype = parameter.variable.slice_dtype.name
            raise GraphError(_ROUNDED_BEFORE.format(name=parameter.name, dtype=dtype, inner=inner))
        return new - parameter.value * parameter.scalar(rate)


def _mean_of(parameter: Parameter) -> str:
    """The name of the mean that `MovingAverageOptimizer` keeps of a weight."""
    return f"{parameter.name}/{AVERAGE}"


def _rounding_in(optimizer: Optimizer, parameter: Parameter) -> str:
    """The name of an optimizer in this one, or of itself, that rounds the weight; empty if there is none."""
    if optimizer_rounds(optimizer, parameter):
        return type(optimizer).__name__
    held = vars(optimizer).values()
    groups = [group for value in held if isinstance(value, list | tuple) for group in value]
    inside = [*held, *(part for group in groups if isinstance(group, list | tuple) for part in group)]
    return next(filter(None, (_rounding_in(each, parameter) for each in inside if isinstance(each, Optimizer))), "")
