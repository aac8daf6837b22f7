"""Local work of sums that grow part by part: the initial zeros, and the addition to one part.

When called as ordinary local work, both make new tensors, and a compiler reuses their memory. On processors TensorFlow
executes operation by operation, and would copy the whole sum to add to a part. So `in_place` overwrites the sum there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.planning.local_work.kept_or_zeros import kept_or_zeros
from meshtf.planning.local_work.rows_in_place import with_rows

if TYPE_CHECKING:
    from meshtf.planning.plan import Core


@dataclasses.dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros that are made after the awaited tensors. `in_place` puts them in memory that no other tensor shares."""

    size: tuple[int, ...]
    dtype: tf.DType

    def __call__(self, core: Core, *awaited: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(awaited):
            return tf.fill(self.size, tf.cast(0, self.dtype))

    def in_place(self, *awaited: tf.Tensor) -> tf.Tensor:
        """Zeros in memory of their own, once the `awaited` tensors exist.

        Constants would not do: TensorFlow makes equal constants one tensor, and keeps it from one run to the next.
        """
        with tf.control_dependencies(awaited):
            return tf.raw_ops.Empty(shape=self.size, dtype=self.dtype, init=True)


@dataclasses.dataclass(frozen=True, slots=True)
class AddToPart:
    """Adds a term to the part of a total at one position along each of some dimensions. The rest of the total is
    unchanged.

    size: the total's size. axes: the dimensions' indices, in the order of their positions. checked: the dimensions
    whose positions may be out of range; then nothing is added.
    """

    size: tuple[int, ...]
    axes: tuple[int, ...]
    checked: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """The number of pieces of memory that the part consists of."""
        return math.prod(self.size[n] for n in self._others)

    @property
    def num_parts(self) -> int:
        """The number of pieces of memory that the total consists of; a part may be in any of them."""
        return math.prod(self.size[: self._num_leading])

    @property
    def row_size(self) -> tuple[int, ...]:
        """The size of one of these pieces."""
        return self.size[self._num_leading :]

    def __call__(self, core: Core, total: tf.Tensor, term: tf.Tensor, *positions: tf.Tensor) -> tf.Tensor:
        is_inside, own = self._inside(positions)
        if is_inside is not None:
            term = tf.where(is_inside, term, tf.zeros([], term.dtype))
        rows, row_size = self._rows(own), self.row_size
        together = tf.reshape(total, [-1, *row_size])
        sums = tf.tensor_scatter_nd_add(together, rows[:, tf.newaxis], tf.reshape(term, [self.num_rows, *row_size]))
        return tf.reshape(sums, self.size)

    def in_place(self, total: tf.Tensor, term: tf.Tensor, *positions: tf.Tensor) -> tf.Tensor:
        """Adds the term in the total's own memory, so nothing else may read the total."""
        rows, term = self.rows_and_term(positions, term)
        row_size = self.row_size
        together = tf.reshape(total, [self.num_parts, *row_size])
        terms = tf.reshape(term, [self.num_rows, *row_size])
        if self.num_rows > 1:
            return tf.reshape(tf.raw_ops.InplaceAdd(x=together, i=rows, v=terms), self.size)
        # The part is a view, so it is not copied, and the sum reuses the memory of the term.
        part = tf.slice(together, _joined(rows, [0] * len(row_size)), [1, *row_size])
        return tf.reshape(with_rows(together, rows, part + terms), self.size)

    def rows_and_term(
        self, positions: Sequence[tf.Tensor], term: tf.Tensor
    ) -> tuple[tf.Tensor | np.ndarray, tf.Tensor]:
        """The numbers of the pieces of memory, int32 [rows], and the term to add to them; for processors."""
        is_inside, own = self._inside(positions)
        return self._rows(own), term if is_inside is None else kept_or_zeros(term, is_inside)

    def _inside(self, positions: Sequence[tf.Tensor]) -> tuple[tf.Tensor | None, list[tf.Tensor]]:
        """Whether all positions are inside (None if none is checked), and the positions clipped to the inside."""
        scalars = [tf.reshape(p, []) if p.shape.rank else p for p in positions]
        if not self.checked:
            return None, scalars
        limits = [(p, self.size[axis]) for p, axis in zip(scalars, self.axes, strict=True) if axis in self.checked]
        is_inside = [tf.logical_and(p >= 0, p < size) for p, size in limits]
        own = [
            tf.clip_by_value(p, 0, self.size[axis] - 1) if axis in self.checked else p
            for p, axis in zip(scalars, self.axes, strict=True)
        ]
        return functools.reduce(tf.logical_and, is_inside), own

    def _rows(self, positions: Sequence[tf.Tensor]) -> tf.Tensor | np.ndarray:
        """int32 [rows]: the row-major indices of the part's pieces among all positions of the leading dimensions."""
        strides = [math.prod(self.size[n + 1 : self._num_leading]) for n in range(self._num_leading)]
        known = [tf.get_static_value(p) for p in positions]
        if all(p is not None for p in known):  # as in an unrolled loop
            first = np.int32(sum(int(p) * strides[n] for n, p in zip(self.axes, known, strict=True)))
        else:
            first = tf.add_n([tf.cast(p, tf.int32) * strides[n] for n, p in zip(self.axes, positions, strict=True)])
        sizes = [self.size[n] for n in self._others]
        steps = np.indices(sizes, np.int32).reshape(len(sizes), self.num_rows)
        return first + np.array([strides[n] for n in self._others], np.int32) @ steps

    @property
    def _num_leading(self) -> int:
        """The number of leading dimensions, up to the last one that has a position. The pieces of memory are their
        rows."""
        return 1 + max(self.axes)

    @property
    def _others(self) -> list[int]:
        return [n for n in range(self._num_leading) if n not in self.axes]


def _joined(begin: tf.Tensor | np.ndarray, more: list[int]) -> tf.Tensor | np.ndarray:
    return tf.concat([begin, more], 0) if isinstance(begin, tf.Tensor) else np.array([*begin, *more], np.int32)
