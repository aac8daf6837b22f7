"""Checks whether a given value is an integer or a number. True and False are neither."""

from __future__ import annotations

import math
import numbers
from typing import TypeGuard

import numpy as np


def is_integer(value: object, least: int) -> TypeGuard[int]:
    """Whether the value is an integer from `least` to the largest of int64.

    Examples:
      >>> [is_integer(value, 1) for value in (1, 0, True, 1.0, 2**63)]
      [True, False, False, False, False]
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def is_seed(value: object) -> bool:
    """Whether the value is an integer of Python or NumPy that int64 holds.

    Examples:
      >>> [is_seed(value) for value in (-1, np.int32(7), True, 1.0, 2**63)]
      [True, True, False, False, False]
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a finite real number within the range of a float.

    Examples:
      >>> [is_number(value) for value in (1, 0.5, True, "1", float("nan"), 10**400)]
      [True, True, False, False, False, False]
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer too large for a float
        return False
