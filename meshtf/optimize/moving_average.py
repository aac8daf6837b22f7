"""Moving averages of the weights over the steps of training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_fractions, check_kinds
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.schedules.rates import count_step

AVERAGE = "ema"


@dataclasses.dataclass(frozen=True)
class MovingAverageOptimizer(Optimizer):
    """Runs another optimizer, and keeps an exponential mean of each weight (after Polyak & Juditsky 1992).

    The mean of a variable w is in `w/ema`, which is float32 if w is narrower. After n steps, the weight after step i
    counts in proportion to decay^(n - i). The mean's initial zero has no influence. With `averaged`, an evaluation
    program reads the means instead of the weights.

    Attributes:
      optimizer: updates the weights.
      decay: how much less a weight counts than the one after it; the mean is over about 1 / (1 - decay) steps.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> averaging = mtf.optimize.MovingAverageOptimizer(mtf.optimize.SgdOptimizer(0.1), decay=0.99)
      >>> _ = averaging.minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'ema/step', 'w/ema']
    """

    optimizer: Optimizer
    decay: float = 0.999

    def __post_init__(self) -> None:
        check_kinds(self)
        check_fractions(self, "decay")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        number = count_step(parameters[0].variable.mesh, AVERAGE).number
        share = (1.0 - self.decay) / self._weight_until(number)
        updated = self.optimizer.update(parameters)
        for parameter, new in zip(parameters, updated, strict=True):
            if new is not parameter.value:
                mean = parameter.slot(AVERAGE)
                mtf.assign(mean, mean + (new - mean) * parameter.scalar(share))
        return updated

    def _weight_until(self, number: mtf.Tensor) -> mtf.Tensor:
        """1 - decay^number, accurate even where it is close to 0."""
        return -mtf.expm1(number * math.log(self.decay)) if self.decay else mtf.ones_like(number)


def averaged(variables: mtf.VariableStore) -> mtf.VariableStore:
    """The variables of a training program, where each variable that has a mean is replaced by its mean.

    Nothing is copied. A program made with `mtf.function(..., variables=averaged(step.variables))` reads the current
    means each time it runs. It must not assign to variables that it shares.

    Raises:
      GraphError: there are no means, before the training program has been initialized or without a
        `MovingAverageOptimizer`; or a mean has another dtype than its variable.

    Examples:
      >>> def step(mesh):
      ...     w = mtf.get_variable(mesh, "w", "n:2", initializer=mtf.ones)
      ...     optimizer = mtf.optimize.MovingAverageOptimizer(mtf.optimize.SgdOptimizer(0.5), decay=0.75)
      ...     return optimizer.minimize(mtf.reduce_sum(w))
      >>> train = mtf.function(step, mtf.SpmdMeshImpl("rows:1", ""))
      >>> _ = train(), train()
      >>> train.variables["w"], mtf.optimize.averaged(train.variables)["w"]
      (array([0., 0.], dtype=float32), array([0.2142857, 0.2142857], dtype=float32))
    """
    ending = f"/{AVERAGE}"
    means = {name: name + ending for name in variables if name + ending in variables}
    if not means:
        raise GraphError(
            f"no variable is called <name>{ending}: train with MovingAverageOptimizer, and initialize or run the "
            f"training program first"
        )
    for name, mean in means.items():
        own, other = variables.slices(name).dtype, variables.slices(mean).dtype
        if own != other:
            raise GraphError(
                f"{name} is {own.name}, but its mean {mean} is {other.name}, and a program can read means only in "
                f"place of variables of the same dtype; evaluate narrow weights without means"
            )
    return variables.renamed({name: means.get(name, name) for name in variables if name not in means.values()})
