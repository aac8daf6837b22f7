"""Adam's moments, which AdamW and LAMB use too."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import meshtf as mtf
from meshtf.optimize.parameter import Parameter

_LARGEST_DECAY = 1.0 - 2.0**-24  # the largest float32 below 1


@dataclasses.dataclass(frozen=True, eq=False)
class BiasCorrection:
    """Two factors that correct the moments for their start at zero, at one step. They are the same for all parameters.

    A mean that starts at 0 is too small by the factor 1 - beta^t after t steps. The usual form divides each moment by
    its factor. This form follows the end of section 2 of Kingma & Ba (2015): it leaves the moments as they are, and
    needs one product for the whole step.

    scale: the factor that multiplies the learning rate (float32 scalar).
    epsilon: the number to add to the root of the uncorrected second moment (float32 scalar).
    """

    scale: mtf.Tensor
    epsilon: mtf.Tensor


@dataclasses.dataclass(frozen=True)
class AdamMoments:
    """Exponential moving averages of the gradients and of their squares.

    beta_1: decay of the mean of the gradients. beta_2: decay of the mean of their squares.
    epsilon: the number added to the root of the second mean.

    The decays are rounded to float32, below 1, so that 1 - beta is exact and not 0.
    """

    beta_1: float
    beta_2: float
    epsilon: float

    def updated(self, parameter: Parameter) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The means `<name>/adam_m` and `<name>/adam_v`, [parameter], which include this step's gradient."""
        mean = parameter.moving_mean("adam_m", float32_decay(self.beta_1), parameter.grad)
        return mean, parameter.moving_mean("adam_v", float32_decay(self.beta_2), mtf.square(parameter.grad))

    def correction(self, step: mtf.Tensor) -> BiasCorrection:
        """The bias correction at a step's number, which counts from 1 (float32 scalar)."""
        mean, square = (_share_of_gradients(float32_decay(beta), step) for beta in (self.beta_1, self.beta_2))
        root = mtf.sqrt(square)
        return BiasCorrection(root / mean, root * self.epsilon)

    def change(self, parameter: Parameter, rate: mtf.Tensor, epsilon: float | mtf.Tensor) -> mtf.Tensor:
        """rate * first moment / (root of the second moment + epsilon), [parameter], after this step's gradient."""
        mean, square = self.updated(parameter)
        added = parameter.scalar(epsilon) if isinstance(epsilon, mtf.Tensor) else epsilon
        return mean * parameter.scalar(rate) / (mtf.sqrt(square) + added)


def float32_decay(beta: float) -> float:
    """A decay rounded to float32, but below 1: with 1, a mean would stay 0, and its correction would divide by 0."""
    return min(float(np.float32(beta)), _LARGEST_DECAY)


def _share_of_gradients(beta: float, step: mtf.Tensor) -> mtf.Tensor:
    """1 - beta^step: the share of a mean that comes from gradients, not from its initial zero.

    It is accurate even where it is close to 0.
    """
    return -mtf.expm1(step * math.log(beta)) if beta else mtf.ones_like(step)
