"""Random numbers for examples. They only depend on a seed and the example's number."""

from __future__ import annotations

import functools

import numpy as np


class Uniforms:
    """A stream of numbers, evenly distributed from 0 (inclusive) to 1.

    They are computed here from the bits of Philox (Salmon et al. 2011). numpy promises the bits of a generator for
    every release, but not its distributions.
    """

    def __init__(self, seed: int, index: int) -> None:
        self._key = (seed, index)

    def draw(self, count: int) -> np.ndarray:
        """Returns the next numbers, [count] float64."""
        return (self._bits.random_raw(count) >> np.uint64(11)) * 2.0**-53

    def draw_below(self, limit: int) -> int:
        """Returns the next number, as an integer from 0 to limit - 1."""
        return int(self.draw(1)[0] * limit)

    def choose(self, count: int, limit: int) -> np.ndarray:
        """Returns different integers from 0 to limit - 1, [count] int64, ascending. Every such set is equally
        likely.
        """
        numbers = self.draw(limit)
        return np.sort(np.argpartition(numbers, count)[:count]) if count < limit else np.arange(limit)

    @functools.cached_property
    def _bits(self) -> np.random.Philox:
        """The generator, made at its first use: making it takes longer than an example that needs no numbers."""
        return np.random.Philox(key=np.array(self._key, np.uint64))
