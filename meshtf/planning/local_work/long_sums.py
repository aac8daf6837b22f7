"""Sums of many rows, in parts.

TensorFlow adds the rows of an array [rows, columns] one after another on processors. The more is added up, the more
digits the next row loses: 4 million rows of 1.1 become 4 % less, and a count in float32 ends at 2^24. Sums of parts,
which are then added, lose hardly any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_LONGEST = 1 << 14
"""The most rows that are added one after another. Their sum is off by at most 2^-10 of the sum of their sizes."""

_LEAST = 64
"""The least rows of a part, so that the sums of all parts take little memory beside the rows."""


def summed(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """The sum of x over ascending axes. Many rows are added in parts, in an order that depends on the shape alone."""
    sizes, rank = [x.shape[axis] for axis in axes], x.shape.rank
    # Along the last axes TensorFlow makes parts itself. Whole numbers lose no digits.
    trailing = sum(axis - rank == n - len(axes) for n, axis in enumerate(axes))
    if math.prod(sizes) <= _LONGEST or trailing == len(axes) or x.dtype.is_integer:
        return tf.reduce_sum(x, np.array(axes, np.int32))
    if trailing:
        first = len(axes) - trailing
    elif len(axes) > 1:
        first = next(n for n in range(len(axes) - 1, -1, -1) if math.prod(sizes[n:]) >= _LEAST) or 1
    else:
        return _summed_in_parts(x, axes[0])
    return summed(summed(x, axes[first:]), axes[:first])


def _summed_in_parts(x: tf.Tensor, axis: int) -> tf.Tensor:
    """The sum over one long axis, in as many parts as they have rows, or nearly so; in one if the size is prime."""
    shape = x.shape.as_list()
    parts = next(n for n in range(math.isqrt(shape[axis]), 0, -1) if not shape[axis] % n)
    in_parts = tf.reshape(x, [*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]])
    return tf.reduce_sum(tf.reduce_sum(in_parts, axis + 1), axis)
