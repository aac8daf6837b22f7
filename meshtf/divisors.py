"""The divisors of a number, for errors that list the sizes that would fit."""

from __future__ import annotations

import math

_MOST_TRIED = 10**6


def divisors(number: int) -> list[int]:
    """The positive divisors in ascending order.

    For a number above 10^12, only the divisors up to 10^6 are returned, to bound the time.

    Examples:
      >>> divisors(12)
      [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, min(math.isqrt(number), _MOST_TRIED) + 1) if number % n == 0]
    if number > _MOST_TRIED**2:
        return small
    return sorted({*small, *(number // n for n in small)})
