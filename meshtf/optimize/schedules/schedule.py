"""A schedule: a rate that changes from step to step.

Schedules are functions of the number of steps taken, and can be composed.
"""

from __future__ import annotations

import abc
import dataclasses
import numbers
from collections.abc import Sequence
from typing import TypeAlias

import meshtf as mtf
from meshtf.field_checks import check, check_kinds, check_not_negative
from meshtf.number_checks import is_number

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
            check(owner, field, is_number(value) and value >= 0, "0 or more")
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
        check_kinds(self)
        check_not_negative(self, "value")

    def __call__(self, step: mtf.Tensor) -> mtf.Tensor:
        return step * 0.0 + float(self.value)


def value_at(value: float | Schedule, step: mtf.Tensor) -> mtf.Tensor:
    """The value of a number or a schedule at a step."""
    return value(step) if isinstance(value, Schedule) else ConstantSchedule(value)(step)


def check_values(schedule: Schedule, field: str, values: Sequence[object]) -> None:
    """Raises ValueError, which names the field, unless it is a list of numbers or schedules."""
    are_values = all(isinstance(value, Schedule) or (is_number(value) and value >= 0) for value in values)
    check(schedule, field, are_values, "made of numbers, 0 or more, and schedules")


def share_of(step: mtf.Tensor, num_steps: float) -> mtf.Tensor:
    """step / num_steps, but at most 1."""
    return mtf.minimum(step / float(num_steps), 1.0)
