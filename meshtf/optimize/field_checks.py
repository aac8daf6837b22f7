"""Checks of the fields of optimizers and schedules: a configuration file can put anything there."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Sequence

from meshtf.errors import DtypeError
from meshtf.field_checks import check
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter


def check_numbers(owner: object, *fields: str) -> None:
    """Checks that fields are numbers, 0 or more.

    Raises:
      ValueError: one is not.
    """
    for field in fields:
        check(owner, field, is_number(getattr(owner, field)), "a number, 0 or more")


def check_above_zero(owner: object, *fields: str) -> None:
    """Checks that fields are finite numbers above 0.

    Raises:
      ValueError: one is not.
    """
    for field in fields:
        value = getattr(owner, field)
        check(owner, field, is_number(value) and value > 0, "a number above 0")


def check_fractions(owner: object, *fields: str) -> None:
    """Checks that fields are numbers from 0 to below 1.

    Raises:
      ValueError: one is not.
    """
    for field in fields:
        value = getattr(owner, field)
        check(owner, field, is_number(value) and value < 1, "a number from 0 to below 1")


def check_flags(owner: object, *fields: str) -> None:
    """Checks that fields are True or False.

    Raises:
      ValueError: one is not.
    """
    for field in fields:
        check(owner, field, isinstance(getattr(owner, field), bool), "True or False")


def is_number(value: object) -> bool:
    """Whether a value is a finite number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return 0 <= float(value) < math.inf
    except OverflowError:  # an integer that no float holds
        return False


def is_list(value: object) -> bool:
    """Whether a value is a list or the like, such as a tuple or an array, and no text."""
    return isinstance(value, Collection) and not isinstance(value, str)


def check_are_optimizers(owner: object, field: str, values: Iterable[object]) -> None:
    """Checks that values are optimizers, and not, for example, an optimizer's class.

    Raises:
      ValueError: one is not.
    """
    for value in values:
        if not isinstance(value, Optimizer):
            raise ValueError(
                f"{type(owner).__name__}: {field} must be an optimizer, and is {value!r}; in gin @Name() makes one, "
                f"parentheses included"
            )


def check_are_real(owner: object, parameters: Sequence[Parameter]) -> None:
    """Checks that weights are real, because update rules use squares and signs of real numbers.

    Raises:
      DtypeError: one is complex.
    """
    for parameter in parameters:
        if parameter.value.dtype.is_complex:
            raise DtypeError(
                f"{type(owner).__name__} updates real weights, and {parameter.name} is {parameter.value.dtype.name}; "
                f"give it to SgdOptimizer or MomentumOptimizer, in ParameterGroups"
            )
