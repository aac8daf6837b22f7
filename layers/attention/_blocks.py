"""Cuts a dimension into blocks of equal size, and pads it if it does not divide."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf


@dataclasses.dataclass(frozen=True)
class Blocks:
    """`count` blocks of `size` positions. The first `used` positions are the dimension's own, and the rest is padding.

    Either the count or the size keeps the dimension's factors of 2 and 3, as far as it is large enough. That number
    then divides over the mesh axes over which the dimension divides.
    """

    used: int
    count: int
    size: int

    @classmethod
    def of_many(cls, length: int, size: int) -> Blocks:
        """Blocks of at most `size`. Their number divides as the length does, at least up to 24."""
        count = aligned(max(-(-length // size), math.gcd(length, 24)), length)
        return cls(length, count, -(-length // count))

    @classmethod
    def of_wide(cls, length: int, size: int) -> Blocks:
        """Blocks of about `size`, whose size divides as the length does."""
        size = aligned(-(-length // -(-length // size)), length)
        return cls(length, -(-length // size), size)

    @classmethod
    def exact(cls, length: int, size: int) -> Blocks:
        """The fewest blocks of at most `size` that need no padding. For a prime length their size is 1."""
        count = next(n for n in range(-(-length // size), length + 1) if length % n == 0)
        return cls(length, count, length // count)

    @property
    def padding(self) -> int:
        return self.count * self.size - self.used

    def padded(self, x: mtf.Tensor, name: str) -> mtf.Tensor:
        """x with zeros at the end of the dimension, so that it fills all blocks."""
        return mtf.pad(x, [0, self.padding], name) if self.padding else x


def aligned(n: int, length: int) -> int:
    """n, rounded up to a multiple of the length's largest divisor up to n that is a power of two, or 3 times one."""
    three = 3 if length % 3 == 0 and n >= 3 else 1
    step = math.gcd(length, three << ((n // three).bit_length() - 1))
    return -(-n // step) * step
