"""LAMB and LARS: optimizers whose steps are proportional to the norm of the weights.

Both divide a step by its own norm and multiply it by the norm of the weights. A layer whose weights have norm 10 then
moves ten times as far as one of norm 1, whatever their gradients are. This lets very large batches use large learning
rates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_fractions, check_kinds, check_not_negative
from meshtf.optimize._adam_moments import AdamMoments
from meshtf.optimize._name_patterns import check_patterns, check_patterns_match, is_found_by
from meshtf.optimize.norms import norm
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real
from meshtf.optimize.schedules.rates import count_step, rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates
from meshtf.optimize.weight_decay import WeightDecay


@dataclasses.dataclass(frozen=True)
class LambOptimizer(Optimizer):
    """LAMB (You et al. 2020, algorithm 2), without bounds on the norms of the weights.

    m' and v' are those of `AdamOptimizer`:

        r = m' / (sqrt(v') + epsilon) + weight_decay * w
        w <- w - learning_rate * (|w| / |r|) * r

    Each variable (each layer of a stack) has a ratio of norms, which is 1 if either norm is 0. The state is that of
    `AdamOptimizer`, with a counter `lamb/step`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      beta_1: decay of the mean of the gradients, per step.
      beta_2: decay of the mean of their squares, per step.
      epsilon: added to the root of the second moment.
      weight_decay: the factor of w in the formula of r.
      exclude_from_weight_decay: regular expressions; variables whose names match one of them are not decayed.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.LambOptimizer(1e-3, weight_decay=0.01).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'lamb/step', 'w/adam_m', 'w/adam_v']
    """

    learning_rate: Rate
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.0
    exclude_from_weight_decay: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_patterns(self, "exclude_from_weight_decay", self.exclude_from_weight_decay)
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "epsilon", "weight_decay")
        check_fractions(self, "beta_1", "beta_2")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        steps = count_step(parameters[0].variable.mesh, "lamb")
        rate = steps.rate(self.learning_rate)
        moments = AdamMoments(self.beta_1, self.beta_2, self.epsilon)
        decay = WeightDecay.checked(self, parameters, self.weight_decay, self.exclude_from_weight_decay)
        correction = moments.correction(steps.number)
        directions = [decay.added_to(moments.change(p, correction.scale, correction.epsilon), p) for p in parameters]
        return [
            p.value - direction * (_ratio(norm(p.value, p), norm(direction, p)) * p.scalar(rate))
            for p, direction in zip(parameters, directions, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class LarsOptimizer(Optimizer):
    """LARS (You et al. 2017, algorithm 1).

        r = trust_coefficient * |w| / (|g| + weight_decay * |w|)
        v <- momentum * v + learning_rate * r * (g + weight_decay * w)
        w <- w - v

    With `scales_momentum=False`, the learning rate and r multiply the step, but not the stored v. A new rate then takes
    full effect at once (Kumar et al. 2019, figure 6, which trains ResNet-50 in fewer epochs with it):

        v <- momentum * v + g + weight_decay * w
        w <- w - learning_rate * r * v

    Each variable (each layer of a stack) has its own r. It is 1 if a norm is 0, and NaN if a norm is not finite. An
    excluded variable has an r of 1 and is not decayed. The state of a variable w is in `w/lars_v`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      momentum: the share of its speed that a weight keeps from step to step.
      weight_decay: the share of a weight that is added to its gradient.
      trust_coefficient: the length of a step relative to the norm of the weights, at a learning rate of 1.
      exclude: regular expressions; variables whose names match one of them are updated by momentum alone.
      scales_momentum: whether v adds up scaled steps, as in the first form, or plain gradients, as in the second.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.LarsOptimizer(0.1, weight_decay=1e-4).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'w/lars_v']
    """

    learning_rate: Rate
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    exclude: Sequence[str] = ()
    scales_momentum: bool = True

    def __post_init__(self) -> None:
        check_patterns(self, "exclude", self.exclude)
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "weight_decay")
        check_above_zero(self, "trust_coefficient")
        check_fractions(self, "momentum")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        check_patterns_match(self, self.exclude, parameters[0].variable.graph)
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "lars")
        return [self._moved(p, p.scalar(rate)) for p in parameters]

    def _moved(self, parameter: Parameter, rate: mtf.Tensor) -> mtf.Tensor:
        direction, length = parameter.grad, rate
        if not is_found_by(self.exclude, parameter.name):
            weight_norm, grad_norm = norm(parameter.value, parameter), norm(parameter.grad, parameter)
            length = _ratio(weight_norm, grad_norm, self.weight_decay, self.trust_coefficient) * rate
            direction = WeightDecay(self.weight_decay).added_to(parameter.grad, parameter)
        before = parameter.slot("lars_v")
        if self.scales_momentum:
            return parameter.value - mtf.assign(before, before * self.momentum + direction * length)
        return parameter.value - mtf.assign(before, before * self.momentum + direction) * length


def _ratio(
    weight_norm: mtf.Tensor, norm_of_change: mtf.Tensor, weight_decay: float = 0.0, coefficient: float = 1.0
) -> mtf.Tensor:
    """coefficient * weight_norm / (norm_of_change + weight_decay * weight_norm), and 1 if either norm is 0.

    The ratio is NaN if a norm is not finite. With a ratio of 0 or 1, elements that are finite themselves would be
    updated as if nothing were wrong.
    """
    are_there = mtf.logical_and(mtf.greater(weight_norm, 0.0), mtf.greater(norm_of_change, 0.0))
    below = norm_of_change + weight_norm * weight_decay
    ratio = mtf.where(are_there, weight_norm * coefficient / mtf.where(are_there, below, 1.0), 1.0)
    return mtf.where(mtf.is_finite(weight_norm + norm_of_change), ratio, math.nan)
