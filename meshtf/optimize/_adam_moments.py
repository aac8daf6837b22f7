"""Adam's moments, which AdamW and LAMB have too."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf
from meshtf.optimize.parameter import Parameter


@dataclasses.dataclass(frozen=True)
class AdamMoments:
    """Means of the gradients and of their squares over the steps, the later ones counting more.

    beta_1: decay of the mean of the gradients. beta_2: of their squares. epsilon: added to the root of the second.
    """

    beta_1: float
    beta_2: float
    epsilon: float

    def updated(self, parameter: Parameter) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The means `<name>/adam_m` and `<name>/adam_v`, [parameter], this step's gradient included."""
        mean = parameter.moving_mean("adam_m", self.beta_1, parameter.grad)
        return mean, parameter.moving_mean("adam_v", self.beta_2, mtf.square(parameter.grad))

    def unbiased(self, step: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        """What takes the bias towards the zero they began with off the first, and off the root of the second.

        The same for all parameters: made for each, among many small ones it was a third of a step's operations.

        Args:
          step: the number of this one, from 1 (float32 scalar).
        """
        return mtf.reciprocal(_bias_correction(self.beta_1, step)), mtf.rsqrt(_bias_correction(self.beta_2, step))

    def direction(self, parameter: Parameter, unbiased: tuple[mtf.Tensor, mtf.Tensor]) -> mtf.Tensor:
        """The first over the root of the second, [parameter], each less its bias: `unbiased` at this step."""
        mean, square = self.updated(parameter)
        mean_scale, square_scale = map(parameter.scalar, unbiased)
        return mean * mean_scale / (mtf.sqrt(square) * square_scale + self.epsilon)

    def direction_without_correction(self, parameter: Parameter) -> mtf.Tensor:
        """The first over the root of the second as they are, [parameter]."""
        mean, square = self.updated(parameter)
        return mean / (mtf.sqrt(square) + self.epsilon)


def _bias_correction(beta: float, step: mtf.Tensor) -> mtf.Tensor:
    """1 - beta^step, without the cancellation while it is small."""
    return -mtf.expm1(step * math.log(beta)) if beta else mtf.ones_like(step)
