"""Where the groups of rows are, one after the other, of which each has a matrix of its own.

Rows stand in b tables of r rows, each with g groups. There are n matrices: a table's own set of g, or one that several
tables share, which then follow one another.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

_LARGEST_TILE = 256
"""Rows. With so many a product is no longer bound by reading its matrix; more compute more rows for nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowGroups:
    """The groups of b tables, which begin where the one before ends.

    Attributes:
      starts: int32 [b, g], the first row of each, within its table.
      sizes: int32 [b, g], so many rows.
      num_rows: r, of a table.
      num_matrices: n.
    """

    starts: tf.Tensor
    sizes: tf.Tensor
    num_rows: int
    num_matrices: int

    @classmethod
    def of(cls, sizes: tf.Tensor, num_rows: int, num_matrices: int) -> RowGroups:
        """From sizes [b, g] of an integer dtype: what is negative counts as 0, and what lies behind the rows is cut."""
        ends = tf.minimum(tf.cumsum(tf.maximum(tf.cast(sizes, tf.int32), 0), axis=1), num_rows)
        starts = tf.concat([tf.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
        return cls(starts, ends - starts, num_rows, num_matrices)

    def part(self, first: tf.Tensor, count: int) -> RowGroups:
        """So many groups of each table, from one on."""
        begin, size = tf.stack([0, first]), [self.num_tables, count]
        starts, sizes = tf.slice(self.starts, begin, size), tf.slice(self.sizes, begin, size)
        return RowGroups(starts, sizes, self.num_rows, self.num_matrices)

    @property
    def num_tables(self) -> int:
        return self.sizes.shape[0]

    @property
    def num_groups(self) -> int:
        """Of a table."""
        return self.sizes.shape[1]

    @property
    def is_shared(self) -> bool:
        """Whether several tables have the same matrices."""
        return self.num_matrices < self.num_tables * self.num_groups

    @property
    def table(self) -> tf.Tensor:
        """int32 [b · g, 3]: of each group its first row, counted in all tables, the one behind its last, its matrix."""
        first = self.starts + self.num_rows * tf.range(self.num_tables)[:, tf.newaxis]
        tables_of_a_set = self.num_tables * self.num_groups // self.num_matrices
        sets = tf.range(self.num_tables) // tables_of_a_set
        matrix = sets[:, tf.newaxis] * self.num_groups + tf.range(self.num_groups)
        return tf.reshape(tf.stack([first, first + self.sizes, matrix], -1), [-1, 3])

    @property
    def tile(self) -> int:
        """Rows of a tile: as many as a group has where all are even, but not too many."""
        return min(max(-(-self.num_rows // self.num_groups), 1), _LARGEST_TILE)
