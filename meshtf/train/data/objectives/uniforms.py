"""Random numbers for examples, decided by a seed and the example's number alone."""

from __future__ import annotations

import functools

import numpy as np


class Uniforms:
    """A stream of numbers, evenly distributed from 0 (inclusive) to 1.

    They are made here from the bits of Philox (Salmon et al. 2011), since numpy promises the bits of a generator for
    every release, and its distributions for none.
    """

    def __init__(self, seed: int, index: int) -> None:
        self._key = (seed, index)

    def draw(self, count: int) -> np.ndarray:
        """The next numbers, [count] float64."""
        return (self._bits.random_raw(count) >> np.uint64(11)) * 2.0**-53

    def draw_below(self, limit: int) -> int:
        """The next number, as an integer from 0 to limit - 1."""
        return int(self.draw(1)[0] * limit)

    def choose(self, count: int, limit: int) -> np.ndarray:
        """[count] int64: different integers from 0 to limit - 1, ascending; every such set is as likely."""
        numbers = self.draw(limit)
        return np.sort(np.argpartition(numbers, count)[:count]) if count < limit else np.arange(limit)

    @functools.cached_property
    def _bits(self) -> np.random.Philox:
        """Made when it is first used: that takes longer than many an example that needs none."""
        return np.random.Philox(key=np.array(self._key, np.uint64))
