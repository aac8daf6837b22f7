"""Adam with decoupled weight decay."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.optimize.optimizer import Optimizer


@dataclasses.dataclass(frozen=True)
class AdamWOptimizer(Optimizer):
    """AdamW (Loshchilov & Hutter 2019, algorithm 2), with the bias correction of Adam (Kingma & Ba 2015).

    With t the number of this step, from 1:

        m <- beta_1 m + (1 - beta_1) g              m' = m / (1 - beta_1^t)
        v <- beta_2 v + (1 - beta_2) g^2            v' = v / (1 - beta_2^t)
        w <- w - learning_rate * (m' / (sqrt(v') + epsilon) + weight_decay * w)

    `learning_rate` is the paper's schedule times its alpha, and `weight_decay` its lambda divided by alpha, the
    convention of PyTorch and Optax. The state of a variable w is in `w/adam_m` and `w/adam_v`, float32 whatever the
    type of w, beside one counter `adam/step`.

    Attributes:
      learning_rate: a number, or a scalar of the program.
      beta_1: decay of the mean of the gradients, per step.
      beta_2: decay of the mean of their squares, per step.
      epsilon: added to the root of the second moment.
      weight_decay: the share of a weight that a step takes off, divided by the learning rate.
      exclude_from_weight_decay: regular expressions; a variable whose name one of them finds is not decayed.
    """

    learning_rate: float | mtf.Tensor
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    exclude_from_weight_decay: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._check_are_scalars("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay")
        for name in ("beta_1", "beta_2"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"AdamWOptimizer: {name} must be between 0 and 1, and is {getattr(self, name)!r}")

    def apply_grads(self, grads: Sequence[mtf.Tensor], variables: Sequence[mtf.Variable]) -> list[mtf.Tensor]:
        steps = mtf.cast(self._count_step(variables[0].mesh), tf.float32)
        mean_scale = self.learning_rate / _bias_correction(self.beta_1, steps)
        square_scale = mtf.rsqrt(_bias_correction(self.beta_2, steps))
        updated = []
        for grad, variable in zip(grads, variables, strict=True):
            mean, square = self._update_moments(mtf.cast(grad, tf.float32), variable)
            change = mean * mean_scale / (mtf.sqrt(square) * square_scale + self.epsilon)
            if self._decays(variable):
                change += mtf.cast(variable.value, tf.float32) * (self.learning_rate * self.weight_decay)
            updated.append(mtf.assign_sub(variable, mtf.cast(change, variable.value.dtype)))
        return updated

    def _count_step(self, mesh: mtf.Mesh) -> mtf.Tensor:
        """The number of this step, from 1."""
        # The name is made unique: two optimizers of a program count each for itself.
        with mesh.graph.root_scope(), mtf.variable_scope(default_name="adam"):
            count = mtf.get_variable(mesh, "step", [], tf.int32, initializer=mtf.zeros, trainable=False)
        return mtf.assign_add(count, mtf.ones(mesh, [], tf.int32))

    def _update_moments(self, grad: mtf.Tensor, variable: mtf.Variable) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The moving means of the gradient and of its square, this step's included."""
        moments = []
        for suffix, beta, value in (("adam_m", self.beta_1, grad), ("adam_v", self.beta_2, mtf.square(grad))):
            slot = _slot(variable, suffix)
            moments.append(mtf.assign(slot, slot * beta + value * (1 - beta)))
        return moments[0], moments[1]

    def _decays(self, variable: mtf.Variable) -> bool:
        excluded = any(re.search(pattern, variable.full_name) for pattern in self.exclude_from_weight_decay)
        return self.weight_decay != 0 and not excluded


def _slot(variable: mtf.Variable, suffix: str) -> mtf.Tensor:
    """State of the optimizer that is shaped and laid out like a variable."""
    with variable.graph.root_scope():
        name = f"{variable.full_name}/{suffix}"
        return mtf.get_variable(variable.mesh, name, variable.shape, tf.float32, initializer=mtf.zeros, trainable=False)


def _bias_correction(beta: float, steps: mtf.Tensor) -> mtf.Tensor:
    """1 - beta^steps, without the cancellation while it is small."""
    return -mtf.expm1(steps * math.log(beta))
