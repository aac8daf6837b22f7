"""Schedules that go from one value to another."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_kinds, check_not_negative
from meshtf.optimize.schedules.schedule import Schedule, share_of


@dataclasses.dataclass(frozen=True)
class LinearSchedule(Schedule):
    """Goes from `start` to `end` in a straight line over `num_steps`, and then stays at `end`.

    Examples:
      >>> schedule = mtf.optimize.LinearSchedule(start=1.0, end=0.0, num_steps=100)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1. , 0.9, 0.5, 0. ], dtype=float32)
    """

    start: float
    end: float
    num_steps: float

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "start", "end")
        check_above_zero(self, "num_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        share = share_of(step, self.num_steps)
        return share * float(self.end) + (1.0 - share) * float(self.start)


@dataclasses.dataclass(frozen=True)
class CosineSchedule(Schedule):
    """Goes from `start` to `end` over `num_steps` along half a cosine (Loshchilov & Hutter 2017), and then stays
    there.

    Examples:
      >>> schedule = mtf.optimize.CosineSchedule(start=1.0, num_steps=100)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1.    , 0.9755, 0.5   , 0.    ], dtype=float32)
    """

    start: float
    num_steps: float
    end: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "start", "end")
        check_above_zero(self, "num_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        height = mtf.cos(share_of(step, self.num_steps) * math.pi) * 0.5 + 0.5
        return height * float(self.start - self.end) + float(self.end)


@dataclasses.dataclass(frozen=True)
class PolynomialSchedule(Schedule):
    """Goes from `start` to `end` over `num_steps` with a power of the share of steps left, and then stays at `end`.

    With a power of 2 it is the decay of ResNet-50 in large batches (Mattson et al. 2020, "MLPerf Training Benchmark";
    Kumar et al. 2019). With 1 it is a `LinearSchedule`.

    Attributes:
      start: the value at step 0.
      num_steps: the number of steps after which the value is `end`.
      end: the last value.
      power: the exponent of the share of steps left.

    Examples:
      >>> schedule = mtf.optimize.PolynomialSchedule(start=1.0, num_steps=100)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1.  , 0.81, 0.25, 0.  ], dtype=float32)
    """

    start: float
    num_steps: float
    end: float = 0.0
    power: float = 2.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "start", "end")
        check_above_zero(self, "num_steps", "power")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        left = mtf.pow(1.0 - share_of(step, self.num_steps), float(self.power))
        return left * float(self.start - self.end) + float(self.end)


@dataclasses.dataclass(frozen=True)
class InverseSquareRootSchedule(Schedule):
    """scale / sqrt(max(step, num_constant_steps)).

    Examples:
      >>> schedule = mtf.optimize.InverseSquareRootSchedule(num_constant_steps=25)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.2   , 0.2   , 0.1414, 0.1   ], dtype=float32)
    """

    scale: float = 1.0
    num_constant_steps: float = 10_000

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "scale")
        check_above_zero(self, "num_constant_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return mtf.rsqrt(mtf.maximum(step, float(self.num_constant_steps))) * float(self.scale)
