"""Schedules made of other schedules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import counted
from meshtf.field_checks import check_above_zero, check_kinds, check_not_negative
from meshtf.optimize.schedules.schedule import Schedule, check_values, share_of, value_at


@dataclasses.dataclass(frozen=True)
class WarmUpSchedule(Schedule):
    """Goes in a straight line from `start` to the first value of `then`, over `num_steps`.

    Then follows `then`, from its beginning.

    Examples:
      >>> schedule = mtf.optimize.WarmUpSchedule(num_steps=10, then=mtf.optimize.CosineSchedule(1.0, 90))
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.    , 1.    , 0.5868, 0.    ], dtype=float32)
    """

    num_steps: float
    then: float | Schedule
    start: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "start")
        check_above_zero(self, "num_steps")
        check_values(self, "then", [self.then])

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        share = share_of(step, self.num_steps)
        after = value_at(self.then, mtf.maximum(step - float(self.num_steps), 0.0))
        return after * share + (1.0 - share) * float(self.start)


@dataclasses.dataclass(frozen=True)
class PiecewiseSchedule(Schedule):
    """Follows `pieces[i]` from step `boundaries[i - 1]` up to, but not including, step `boundaries[i]`.

    The first piece starts at step 0, and the last has no end. A piece that is a schedule counts its steps from its own
    beginning.

    Examples:
      >>> schedule = mtf.optimize.PiecewiseSchedule(boundaries=[10, 50], pieces=[1.0, 0.5, 0.1])
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([1. , 0.5, 0.1, 0.1], dtype=float32)
    """

    boundaries: Sequence[float]
    pieces: Sequence[float | Schedule]

    def __post_init__(self) -> None:
        check_kinds(self)
        check_values(self, "pieces", self.pieces)
        if len(self.pieces) != len(self.boundaries) + 1:
            raise ValueError(
                f"PiecewiseSchedule: {counted(len(self.boundaries), 'boundary needs', 'boundaries need')} "
                f"{counted(len(self.boundaries) + 1, 'piece')}, but "
                f"there are {len(self.pieces)}"
            )
        if any(a >= b for a, b in zip([0, *self.boundaries], self.boundaries, strict=False)):
            raise ValueError(
                f"PiecewiseSchedule: boundaries must increase from above 0, and are {list(self.boundaries)}"
            )

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        value = value_at(self.pieces[0], step)
        for boundary, piece in zip(self.boundaries, self.pieces[1:], strict=True):
            since = mtf.maximum(step - float(boundary), 0.0)
            value = mtf.where(mtf.less(step, float(boundary)), value, value_at(piece, since))
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
        check_kinds(self)
        check_values(self, "factors", self.factors)

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return math.prod((value_at(factor, step) for factor in self.factors), start=step * 0.0 + 1.0)


@dataclasses.dataclass(frozen=True)
class OffsetSchedule(Schedule):
    """Follows `then`, beginning at its step `offset`.

    Use it to continue training from the weights of another run. If `offset` is the number of that run's steps, the new
    run, which counts from 0, has the rates that would have followed.

    Examples:
      >>> schedule = mtf.optimize.OffsetSchedule(50, then=mtf.optimize.LinearSchedule(1.0, 0.0, 100))
      >>> value(schedule(mtf.constant(mesh, [0, 10, 50, 100], "step:4"))).round(4)
      array([0.5, 0.4, 0. , 0. ], dtype=float32)
    """

    offset: float
    then: Schedule

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "offset")
        check_values(self, "then", [self.then])

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return value_at(self.then, step + float(self.offset))
