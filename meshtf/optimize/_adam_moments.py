"""Adam's moments, which AdamW and LAMB have too."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf
from meshtf.optimize.parameter import Parameter


@dataclasses.dataclass(frozen=True, eq=False)
class BiasCorrection:
    """What takes the moments' bias towards the zero they began with away, at one step: the same for all parameters.

    mean: times the first moment. root: times the root of the second. Both are float32 scalars.
    """

    mean: mtf.Tensor
    root: mtf.Tensor


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

    def correction(self, step: mtf.Tensor) -> BiasCorrection:
        """At a step of this number, from 1 (float32 scalar)."""
        mean, square = (_share_of_gradients(beta, step) for beta in (self.beta_1, self.beta_2))
        return BiasCorrection(mtf.reciprocal(mean), mtf.rsqrt(square))

    def direction(self, parameter: Parameter, correction: BiasCorrection) -> mtf.Tensor:
        """The first over the root of the second, [parameter], each without its bias; the gradient is counted."""
        mean, square = self.updated(parameter)
        scaled = mtf.sqrt(square) * parameter.scalar(correction.root)
        return mean * parameter.scalar(correction.mean) / (scaled + self.epsilon)

    def direction_without_correction(self, parameter: Parameter) -> mtf.Tensor:
        """The first over the root of the second as they are, [parameter]."""
        mean, square = self.updated(parameter)
        return mean / (mtf.sqrt(square) + self.epsilon)


def _share_of_gradients(beta: float, step: mtf.Tensor) -> mtf.Tensor:
    """1 - beta^step, what a mean has of gradients and not of its zero, without cancellation while that is small."""
    return -mtf.expm1(step * math.log(beta)) if beta else mtf.ones_like(step)
