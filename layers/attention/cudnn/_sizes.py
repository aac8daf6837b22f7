"""The sizes of a kernel of attention, read from the shapes of the slices that it is given."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class AttentionSizes:
    """The sizes of one call: q is [batch, length, heads, size], k and v are [batch, memory_length, memory_heads, size].

    Attributes:
      batch: all batch dimensions together.
      length: the number of queries.
      memory_length: the number of keys.
      heads: the heads of queries.
      memory_heads: the heads of keys and values, a divisor of `heads`.
      size: the size of a query, a key and a value of one head.
    """

    batch: int
    length: int
    memory_length: int
    heads: int
    memory_heads: int
    size: int

    @classmethod
    def of(cls, q: Sequence[int], k: Sequence[int], batch_dims: int) -> AttentionSizes:
        """The sizes of slices q [*batch, length, *heads, size] and k [*batch, memory_length, *heads, size]."""
        n = batch_dims
        return cls(math.prod(q[:n]), q[n], k[n], math.prod(q[n + 1 : -1]), math.prod(k[n + 1 : -1]), q[-1])

    @property
    def q(self) -> tuple[int, int, int, int]:
        """[batch, length, heads, size]."""
        return self.batch, self.length, self.heads, self.size

    @property
    def k(self) -> tuple[int, int, int, int]:
        """[batch, memory_length, memory_heads, size]."""
        return self.batch, self.memory_length, self.memory_heads, self.size

    @property
    def grouped_q(self) -> tuple[int, int, int, int, int]:
        """[batch, length, memory_heads, heads of queries for each, size]."""
        return self.batch, self.length, self.memory_heads, self.heads // self.memory_heads, self.size

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """[batch, heads, length, memory_length]."""
        return self.batch, self.heads, self.length, self.memory_length

    @property
    def statistics(self) -> tuple[int, int, int]:
        """[batch, heads, length]."""
        return self.batch, self.heads, self.length
