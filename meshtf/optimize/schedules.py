"""Schedules: rates that change from step to step.

They are functions of the number of steps taken, and can be composed.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import TypeAlias

import meshtf as mtf
from meshtf.errors import counted
from meshtf.optimize.field_checks import check, check_above_zero, check_numbers, is_number

Rate: TypeAlias = "float | mtf.Tensor | Schedule"


class Schedule(abc.ABC):
    """A number for each step. A schedule has no state: the optimizer counts steps, so a resumed run continues.

    Examples:
      >>> optimizer = mtf.optimize.AdamOptimizer(mtf.optimize.WarmUpSchedule(10, then=1e-3))
      >>> isinstance(optimizer.learning_rate, mtf.optimize.Schedule)
      True
    """

    @abc.abstractmethod
    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        """The value at a step.

        Args:
          step: the number of steps before this one, a float32 scalar.

        Returns:
          A float32 scalar.
        """


def check_rates(owner: object, *fields: str) -> None:
    """Checks that fields are rates: numbers (0 or more), scalars of the program, or schedules.

    Raises:
      ValueError: one is not.
    """
    for field in fields:
        value = getattr(owner, field)
        if isinstance(value, numbers.Real):
            check(owner, field, is_number(value), "0 or more")
        elif isinstance(value, mtf.Tensor):
            check(owner, field, not value.shape.ndims and value.dtype.is_floating, "a floating scalar")
        else:
            check(owner, field, isinstance(value, Schedule), "a number, a scalar of the program or a schedule")


@dataclasses.dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """Always `value`.

    Examples:
      >>> schedule = mtf.optimize.ConstantSchedule(0.1)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.1, 0.1, 0.1, 0.1], dtype=float32)
    """

    value: float

    def __post_init__(self) -> None:
        check_numbers(self, "value")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return step * 0.0 + float(self.value)


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
    num_steps: int

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_above_zero(self, "num_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        share = _share(step, self.num_steps)
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
    num_steps: int
    end: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_above_zero(self, "num_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        height = mtf.cos(_share(step, self.num_steps) * math.pi) * 0.5 + 0.5
        return height * float(self.start - self.end) + float(self.end)


@dataclasses.dataclass(frozen=True)
class PolynomialSchedule(Schedule):
    """Goes from `start` to `end` over `num_steps` as a power of the steps that are left, and then stays at `end`.

    With a power of 2 it is the decay of ResNet-50 in large batches (Mattson et al. 2020, "MLPerf Training Benchmark";
    Kumar et al. 2019). With 1 it is a `LinearSchedule`.

    Attributes:
      start: the value at step 0.
      num_steps: the number of steps after which it is `end`.
      end: the last value.
      power: the power of the share of the steps that is left.

    Examples:
      >>> schedule = mtf.optimize.PolynomialSchedule(start=1.0, num_steps=100)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1.  , 0.81, 0.25, 0.  ], dtype=float32)
    """

    start: float
    num_steps: int
    end: float = 0.0
    power: float = 2.0

    def __post_init__(self) -> None:
        check_numbers(self, "start", "end")
        check_above_zero(self, "num_steps", "power")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        left = mtf.pow(1.0 - _share(step, self.num_steps), float(self.power))
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
    num_constant_steps: int = 10_000

    def __post_init__(self) -> None:
        check_numbers(self, "scale")
        check_above_zero(self, "num_constant_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return mtf.rsqrt(mtf.maximum(step, float(self.num_constant_steps))) * float(self.scale)


@dataclasses.dataclass(frozen=True)
class WarmUpSchedule(Schedule):
    """Goes in a straight line from `start` to the first value of `then`, over `num_steps`.

    Then follows `then`, from its beginning.

    Examples:
      >>> schedule = mtf.optimize.WarmUpSchedule(num_steps=10, then=mtf.optimize.CosineSchedule(1.0, 90))
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.    , 1.    , 0.5868, 0.    ], dtype=float32)
    """

    num_steps: int
    then: float | Schedule
    start: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, "start")
        check_above_zero(self, "num_steps")
        _check_values(self, "then", [self.then])

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        share = _share(step, self.num_steps)
        after = _at(self.then, mtf.maximum(step - float(self.num_steps), 0.0))
        return after * share + (1.0 - share) * float(self.start)


@dataclasses.dataclass(frozen=True)
class PiecewiseSchedule(Schedule):
    """Takes `pieces[i]` from `boundaries[i - 1]` up to, but without, `boundaries[i]`.

    The first piece starts at step 0, and the last has no end. A piece that is a schedule counts its steps from its own
    beginning.

    Examples:
      >>> schedule = mtf.optimize.PiecewiseSchedule(boundaries=[10, 50], pieces=[1.0, 0.5, 0.1])
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1. , 0.5, 0.1, 0.1], dtype=float32)
    """

    boundaries: Sequence[int]
    pieces: Sequence[float | Schedule]

    def __post_init__(self) -> None:
        _check_values(self, "pieces", self.pieces)
        if len(self.pieces) != len(self.boundaries) + 1:
            raise ValueError(
                f"PiecewiseSchedule: {counted(len(self.boundaries), 'boundary needs', 'boundaries need')} "
                f"{counted(len(self.boundaries) + 1, 'piece')}, and "
                f"there are {len(self.pieces)}"
            )
        if any(a >= b for a, b in zip([0, *self.boundaries], self.boundaries, strict=False)):
            raise ValueError(f"PiecewiseSchedule: boundaries must rise from above 0, and are {list(self.boundaries)}")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        value = _at(self.pieces[0], step)
        for boundary, piece in zip(self.boundaries, self.pieces[1:], strict=True):
            since = mtf.maximum(step - float(boundary), 0.0)
            value = mtf.where(mtf.less(step, float(boundary)), value, _at(piece, since))
        return value


@dataclasses.dataclass(frozen=True)
class ProductSchedule(Schedule):
    """The product of factors, numbers or schedules, all at the same step.

    Examples:
      >>> schedule = mtf.optimize.ProductSchedule([0.5, mtf.optimize.LinearSchedule(1.0, 0.0, 100)])
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.5 , 0.45, 0.25, 0.  ], dtype=float32)
    """

    factors: Sequence[float | Schedule]

    def __post_init__(self) -> None:
        _check_values(self, "factors", self.factors)

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return math.prod((_at(factor, step) for factor in self.factors), start=step * 0.0 + 1.0)


@dataclasses.dataclass(frozen=True)
class OffsetSchedule(Schedule):
    """Takes `then` at step + offset.

    Suppose that you go on training from the weights of another run, whose steps this run does not count. With the
    offset, it has the rates that would have followed.

    Examples:
      >>> schedule = mtf.optimize.OffsetSchedule(50, then=mtf.optimize.LinearSchedule(1.0, 0.0, 100))
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.5, 0.4, 0. , 0. ], dtype=float32)
    """

    offset: int
    then: Schedule

    def __post_init__(self) -> None:
        check_numbers(self, "offset")
        _check_values(self, "then", [self.then])

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return _at(self.then, step + float(self.offset))


@dataclasses.dataclass(frozen=True)
class NoamSchedule(Schedule):
    """multiplier / sqrt(max(step - offset, warmup_steps)), then a straight line to 0 in the last part of training.

    This is Mesh-TensorFlow's `learning_rate_schedule_noam`, after the schedule of Vaswani et al. (2017).

    Attributes:
      total_steps: the number of steps of the training.
      warmup_steps: the number of steps in which the rate is constant.
      linear_decay_fraction: the part of `total_steps` at the end in which the rate goes to 0; 0 for none.
      multiplier: a factor of every value.
      offset: the step from which on the root counts.

    Examples:
      >>> schedule = mtf.optimize.NoamSchedule(total_steps=100, warmup_steps=25)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.2   , 0.2   , 0.1414, 0.    ], dtype=float32)
    """

    total_steps: int
    warmup_steps: int = 10_000
    linear_decay_fraction: float = 0.1
    multiplier: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "multiplier", "offset", "linear_decay_fraction")
        check_above_zero(self, "total_steps", "warmup_steps")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        root = mtf.rsqrt(mtf.maximum(step - float(self.offset), float(self.warmup_steps)))
        if not self.linear_decay_fraction:
            return root * float(self.multiplier)
        left = (float(self.total_steps) - step) / (self.total_steps * self.linear_decay_fraction)
        return root * mtf.clip_by_value(left, 0.0, 1.0) * float(self.multiplier)


@dataclasses.dataclass(frozen=True)
class SlantedTriangularSchedule(Schedule):
    """Goes up to `max_learning_rate` in a short straight line and down in a long one (Howard & Ruder 2018).

    Attributes:
      total_steps: the number of steps of the training.
      cut_fraction: the part of the steps from `start_step` on in which the rate goes up.
      ratio: how many times lower the rate is at both ends.
      max_learning_rate: the rate at which the lines meet.
      start_step: the step at which the first line begins.

    Examples:
      >>> schedule = mtf.optimize.SlantedTriangularSchedule(total_steps=100, max_learning_rate=0.01)
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.0003, 0.01  , 0.0057, 0.0003], dtype=float32)
    """

    total_steps: int
    cut_fraction: float = 0.1
    ratio: float = 32.0
    max_learning_rate: float = 0.01
    start_step: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "start_step")
        check_above_zero(self, "total_steps", "cut_fraction", "ratio", "max_learning_rate")
        if self._cut < 1 or self.cut_fraction >= 1:
            raise ValueError(
                f"SlantedTriangularSchedule: the rate must go up for one step or more and then down, and {self} goes "
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


def _share(step: mtf.Tensor, num_steps: int) -> mtf.Tensor:
    """step / num_steps, and 1 from there on."""
    return mtf.minimum(step / float(num_steps), 1.0)


def _at(value: float | Schedule, step: mtf.Tensor) -> mtf.Tensor:
    return value(step) if isinstance(value, Schedule) else ConstantSchedule(value)(step)


def _check_values(schedule: Schedule, field: str, values: Sequence[object]) -> None:
    are_values = all(isinstance(value, Schedule) or is_number(value) for value in values)
    check(schedule, field, are_values, "made of numbers, 0 or more, and schedules")
