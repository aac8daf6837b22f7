"""Schedules of published models."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_kinds, check_not_negative
from meshtf.optimize.schedules.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class NoamSchedule(Schedule):
    """multiplier / sqrt(max(step - offset, warmup_steps)), then a straight line to 0 in the last part of training.

    This is Mesh-TensorFlow's `learning_rate_schedule_noam`, after the schedule of Vaswani et al. (2017). There the
    `linear_decay_fraction` is of the steps after the offset, so with an offset multiply it by 1 - offset / total_steps.

    Attributes:
      total_steps: the number of steps of the training.
      warmup_steps: the number of steps in which the rate is constant.
      linear_decay_fraction: the last part of `total_steps`, in which the rate falls to 0; 0 for none.
      multiplier: multiplies every value.
      offset: the number that is subtracted from the step under the root.

    Examples:
      >>> schedule = mtf.optimize.NoamSchedule(total_steps=100, warmup_steps=25)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.2   , 0.2   , 0.1414, 0.    ], dtype=float32)
    """

    total_steps: float
    warmup_steps: float = 10_000
    linear_decay_fraction: float = 0.1
    multiplier: float = 1.0
    offset: float = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "multiplier", "offset", "linear_decay_fraction")
        check_above_zero(self, "total_steps", "warmup_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        root = mtf.rsqrt(mtf.maximum(step - float(self.offset), float(self.warmup_steps)))
        if not self.linear_decay_fraction:
            return root * float(self.multiplier)
        left = (float(self.total_steps) - step) / (self.total_steps * self.linear_decay_fraction)
        return root * mtf.clip_by_value(left, 0.0, 1.0) * float(self.multiplier)


@dataclasses.dataclass(frozen=True)
class SlantedTriangularSchedule(Schedule):
    """Rises to `max_learning_rate` in a short straight line and falls in a long one (Howard & Ruder 2018).

    Attributes:
      total_steps: the number of steps of the training.
      cut_fraction: the part of the steps after `start_step` in which the rate rises.
      ratio: how many times lower the rate is at both ends.
      max_learning_rate: the rate at which the lines meet.
      start_step: the step at which the first line begins.

    Examples:
      >>> schedule = mtf.optimize.SlantedTriangularSchedule(total_steps=100, max_learning_rate=0.01)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.0003, 0.01  , 0.0057, 0.0003], dtype=float32)
    """

    total_steps: float
    cut_fraction: float = 0.1
    ratio: float = 32.0
    max_learning_rate: float = 0.01
    start_step: float = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "start_step")
        check_above_zero(self, "total_steps", "cut_fraction", "ratio", "max_learning_rate")
        if self._cut < 1 or self.cut_fraction >= 1:
            raise ValueError(
                f"SlantedTriangularSchedule: the rate must go up for one step or more and then down, but {self} goes "
                f"up for {self._cut} of {self.total_steps - self.start_step} steps"
            )

    @property
    def _cut(self) -> int:
        return math.floor((self.total_steps - self.start_step) * self.cut_fraction)

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        since, cut = mtf.maximum(step - float(self.start_step), 0.0), float(self._cut)
        down = 1.0 - (since - cut) / (cut * (1.0 / self.cut_fraction - 1.0))
        height = mtf.where(mtf.less(since, cut), since / cut, mtf.maximum(down, 0.0))
        return (height * (self.ratio - 1.0) + 1.0) * (self.max_learning_rate / self.ratio)
