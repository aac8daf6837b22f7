"""Adam, with decoupled weight decay and without.

Each weight's step is the mean of its gradients, divided by their root mean square. With gradients of 0.01 and of 100,
both weights move by about the learning rate per step. A weight whose gradients change their sign moves less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_fractions, check_kinds, check_not_negative
from meshtf.optimize._adam_moments import AdamMoments
from meshtf.optimize._name_patterns import check_patterns
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real
from meshtf.optimize.schedules.rates import count_step, rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates
from meshtf.optimize.weight_decay import WeightDecay


@dataclasses.dataclass(frozen=True)
class AdamOptimizer(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1).

    With t the number of this step, from 1:

        m <- beta_1 m + (1 - beta_1) g              m' = m / (1 - beta_1^t)
        v <- beta_2 v + (1 - beta_2) g^2            v' = v / (1 - beta_2^t)
        w <- w - learning_rate * m' / (sqrt(v') + epsilon)

    The state of a variable w is in `w/adam_m` and `w/adam_v`, which are float32 if w is narrower. All variables share
    one counter, `adam/step`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      beta_1: decay of the mean of the gradients, per step.
      beta_2: decay of the mean of their squares, per step.
      epsilon: added to the root of the second moment.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.AdamOptimizer(1e-3).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'adam/step', 'w/adam_m', 'w/adam_v']
    """

    learning_rate: Rate
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "epsilon")
        check_fractions(self, "beta_1", "beta_2")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        steps = count_step(parameters[0].variable.mesh, "adam")
        rate = steps.rate(self.learning_rate)
        moments = AdamMoments(self.beta_1, self.beta_2, self.epsilon)
        correction = moments.correction(steps.number)
        scaled = rate * correction.scale
        return [p.value - moments.change(p, scaled, correction.epsilon) for p in parameters]


@dataclasses.dataclass(frozen=True)
class AdamWOptimizer(Optimizer):
    """AdamW (Loshchilov & Hutter 2019, algorithm 2), with m' and v' of `AdamOptimizer`:

        w <- w - learning_rate * (m' / (sqrt(v') + epsilon) + weight_decay * w)

    `learning_rate` is the paper's schedule times its alpha. `weight_decay` is its lambda divided by alpha, as in
    PyTorch and Optax. The state is that of `AdamOptimizer`, under the same names.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      beta_1: decay of the mean of the gradients, per step.
      beta_2: decay of the mean of their squares, per step.
      epsilon: added to the root of the second moment.
      weight_decay: the factor of w in the formula above.
      exclude_from_weight_decay: regular expressions; variables whose names match one of them are not decayed.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.AdamWOptimizer(1e-3, weight_decay=0.1).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'adam/step', 'w/adam_m', 'w/adam_v']
    """

    learning_rate: Rate
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    exclude_from_weight_decay: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_patterns(self, "exclude_from_weight_decay", self.exclude_from_weight_decay)
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "epsilon", "weight_decay")
        check_fractions(self, "beta_1", "beta_2")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        steps = count_step(parameters[0].variable.mesh, "adam")
        rate = steps.rate(self.learning_rate)
        moments = AdamMoments(self.beta_1, self.beta_2, self.epsilon)
        correction = moments.correction(steps.number)
        decay = WeightDecay.checked(self, parameters, self.weight_decay, self.exclude_from_weight_decay)
        scaled, share = rate * correction.scale, decay.share(rate)
        return [p.value - decay.added_to(moments.change(p, scaled, correction.epsilon), p, share) for p in parameters]


@dataclasses.dataclass(frozen=True)
class AdamWeightDecayOptimizer(Optimizer):
    """Adam as BERT was trained with it (Devlin et al. 2019), and Mesh-TensorFlow's optimizer of this name.

    The moments are not corrected for their bias. Early steps are therefore larger: the first is about 3.2 times the
    learning rate. The state is that of `AdamOptimizer` without the counter, under the same names.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      weight_decay_rate: a step subtracts learning_rate * weight_decay_rate * w from each weight w.
      beta_1: decay of the mean of the gradients, per step.
      beta_2: decay of the mean of their squares, per step.
      epsilon: added to the root of the second moment.
      exclude_from_weight_decay: regular expressions; variables whose names match one of them are not decayed.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.AdamWeightDecayOptimizer(1e-3, weight_decay_rate=0.01).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'w/adam_m', 'w/adam_v']
    """

    learning_rate: Rate
    weight_decay_rate: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    exclude_from_weight_decay: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_patterns(self, "exclude_from_weight_decay", self.exclude_from_weight_decay)
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "epsilon", "weight_decay_rate")
        check_fractions(self, "beta_1", "beta_2")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "adam")
        moments = AdamMoments(self.beta_1, self.beta_2, self.epsilon)
        decay = WeightDecay.checked(self, parameters, self.weight_decay_rate, self.exclude_from_weight_decay)
        share = decay.share(rate)
        return [p.value - decay.added_to(moments.change(p, rate, self.epsilon), p, share) for p in parameters]
