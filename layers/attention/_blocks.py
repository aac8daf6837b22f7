"""Cutting a dimension into blocks of equal size, padded where it does not divide."""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf


@dataclasses.dataclass(frozen=True)
class Blocks:
    """`count` blocks of `size` places, of which the first `used`, in the order of the dimension, are its own.

    The rest is padding. Of powers of two and of 3, one of the two numbers divides by what the dimension divides by, as
    far as it is large enough, so that it divides over the mesh axes over which the dimension does.
    """

    used: int
    count: int
    size: int

    @classmethod
    def of_many(cls, length: int, size: int) -> Blocks:
        """Blocks of at most `size`, their number dividing as the length does, up to 24 at least."""
        count = aligned(max(-(-length // size), math.gcd(length, 24)), length)
        return cls(length, count, -(-length // count))

    @classmethod
    def of_wide(cls, length: int, size: int) -> Blocks:
        """Blocks of about `size`, whose size divides as the length does."""
        size = aligned(-(-length // -(-length // size)), length)
        return cls(length, -(-length // size), size)

    @classmethod
    def exact(cls, length: int, size: int) -> Blocks:
        """The fewest blocks of at most `size` that need no padding; their size is 1 where the length is prime."""
        count = next(n for n in range(-(-length // size), length + 1) if length % n == 0)
        return cls(length, count, length // count)

    @property
    def padding(self) -> int:
        return self.count * self.size - self.used

    def padded(self, x: mtf.Tensor, name: str) -> mtf.Tensor:
        """x with zeros at the end of the dimension, as long as all blocks."""
        return mtf.pad(x, [0, self.padding], name) if self.padding else x


def aligned(n: int, length: int) -> int:
    """n, brought up to a multiple of the divisor of the length that is a power of two, times 3 if it can, up to n."""
    three = 3 if length % 3 == 0 and n >= 3 else 1
    step = math.gcd(length, three << ((n // three).bit_length() - 1))
    return -(-n // step) * step
