"""The places of groups of rows, which follow one another. Each group has its own matrix.

There are b tables of r rows, each with g groups, and n matrices. Either each table has its own set of g matrices, or
consecutive tables share a set.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.thresholds import LARGEST_TILE


@dataclasses.dataclass(frozen=True, slots=True)
class RowGroups:
    """The groups of b tables. Each group begins where the one before ends.

    Attributes:
      starts: int32 [b, g], the first row of each group, within its table.
      sizes: int32 [b, g], the number of rows of each group.
      num_rows: r, the rows of a table.
      num_matrices: n, the number of matrices.
    """

    starts: tf.Tensor
    sizes: tf.Tensor
    num_rows: int
    num_matrices: int

    @classmethod
    def of(cls, sizes: tf.Tensor, num_rows: int, num_matrices: int) -> RowGroups:
        """The groups of sizes [b, g], of an integer dtype.

        Negative sizes count as 0. Groups are cut at the end of the rows.
        """
        ends = tf.minimum(tf.cumsum(tf.maximum(tf.cast(sizes, tf.int32), 0), axis=1), num_rows)
        starts = tf.concat([tf.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
        return cls(starts, ends - starts, num_rows, num_matrices)

    def part(self, first: tf.Tensor, count: int) -> RowGroups:
        """`count` groups of each table, from the group `first` on."""
        begin, size = tf.stack([0, first]), [self.num_tables, count]
        starts, sizes = tf.slice(self.starts, begin, size), tf.slice(self.sizes, begin, size)
        return RowGroups(starts, sizes, self.num_rows, self.num_matrices)

    @property
    def num_tables(self) -> int:
        return self.sizes.shape[0]

    @property
    def num_groups(self) -> int:
        """The number of groups of a table."""
        return self.sizes.shape[1]

    @property
    def is_shared(self) -> bool:
        """Whether several tables have the same matrices."""
        return self.num_matrices < self.num_tables * self.num_groups

    @property
    def table(self) -> tf.Tensor:
        """int32 [b · g, 3]: each group's first row and the row after its last, over all tables, and its matrix."""
        first = self.starts + self.num_rows * tf.range(self.num_tables)[:, tf.newaxis]
        tables_of_a_set = self.num_tables * self.num_groups // self.num_matrices
        sets = tf.range(self.num_tables) // tables_of_a_set
        matrix = sets[:, tf.newaxis] * self.num_groups + tf.range(self.num_groups)
        return tf.reshape(tf.stack([first, first + self.sizes, matrix], -1), [-1, 3])

    @property
    def tile(self) -> int:
        """The number of rows of a tile: the average size of a group, up to a limit."""
        return min(max(-(-self.num_rows // self.num_groups), 1), LARGEST_TILE)
