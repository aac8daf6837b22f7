"""Adam's moments, which AdamW and LAMB have too."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import meshtf as mtf
from meshtf.optimize.parameter import Parameter


@dataclasses.dataclass(frozen=True, eq=False)
class BiasCorrection:
    """What takes the moments' bias towards the zero they began with away, at one step: the same for all parameters.

    In the order of Kingma & Ba (2015), end of section 2, which leaves the moments as they are.

    scale: times the learning rate. epsilon: what is added to the root of the second moment as it is. Both are float32
    scalars.
    """

    scale: mtf.Tensor
    epsilon: mtf.Tensor


@dataclasses.dataclass(frozen=True)
class AdamMoments:
    """Means of the gradients and of their squares over the steps, the later ones counting more.

    beta_1: decay of the mean of the gradients. beta_2: of their squares. epsilon: added to the root of the second.
    The decays are the float32 numbers next to these, of which 1 - beta has no rounding.
    """

    beta_1: float
    beta_2: float
    epsilon: float

    def updated(self, parameter: Parameter) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The means `<name>/adam_m` and `<name>/adam_v`, [parameter], this step's gradient included."""
        mean = parameter.moving_mean("adam_m", _float32(self.beta_1), parameter.grad)
        return mean, parameter.moving_mean("adam_v", _float32(self.beta_2), mtf.square(parameter.grad))

    def correction(self, step: mtf.Tensor) -> BiasCorrection:
        """At a step of this number, from 1 (float32 scalar)."""
        mean, square = (_share_of_gradients(_float32(beta), step) for beta in (self.beta_1, self.beta_2))
        root = mtf.sqrt(square)
        return BiasCorrection(root / mean, root * self.epsilon)

    def change(self, parameter: Parameter, rate: mtf.Tensor, epsilon: float | mtf.Tensor) -> mtf.Tensor:
        """rate times the first over the root of the second and epsilon, [parameter]; the gradient is counted."""
        mean, square = self.updated(parameter)
        added = parameter.scalar(epsilon) if isinstance(epsilon, mtf.Tensor) else epsilon
        return mean * parameter.scalar(rate) / (mtf.sqrt(square) + added)


def _float32(beta: float) -> float:
    return float(np.float32(beta))


def _share_of_gradients(beta: float, step: mtf.Tensor) -> mtf.Tensor:
    """1 - beta^step, what a mean has of gradients and not of its zero, without cancellation while that is small."""
    return -mtf.expm1(step * math.log(beta)) if beta else mtf.ones_like(step)
