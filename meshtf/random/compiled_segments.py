"""Compiled segments: the functions that draw random numbers, compiled by XLA and shared by the whole process.

There is one for each distribution, dtype, padded size and number of merged axes. XLA turns the hundred integer
operations of Threefry into one loop without intermediate tensors. That is ten times faster than one TensorFlow
operation after the other. XLA compiles again for each size and each device, in about 50 ms. Sizes are therefore padded
up to one of a few, and all small slices get the same number of axes. The key, the position, the geometry and the
distribution's numbers are arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.random._xla_call import as_xla_call
from meshtf.random.distributions import Distribution, computed_in
from meshtf.random.keys import Key, key_tensor
from meshtf.random.positions import Begin, SliceGeometry, counters
from meshtf.random.threefry import threefry_2x32

# A padded slice is rows of this many elements. The inner loop of every segment has this length, a multiple of every
# vector's length. No element is therefore left to the scalar rest of a vector loop, which may round differently.
ROW = 1024
SMALL_ROWS = (1, 16, 64)  # a segment of 64 rows takes 0.1 ms, so fewer compilations are worth more
SMALL_AXES = 4  # for segments of up to 16 rows: one compilation takes longer than thousands of draws with extra axes
LEADING_BITS = 3  # larger sizes keep 3 bits after the leading one, which wastes at most 1/8
MOST_ELEMENTS = 2**30  # in one segment; larger slices are drawn in parts


@tf.autograph.experimental.do_not_convert
def draw(
    distribution: Distribution,
    key: Key,
    begin: Begin,
    shapes: tuple[Sequence[int], Sequence[int]],
    dtype: tf.DType,
    numbers: Sequence[float] = (),
) -> tf.Tensor:
    """The distribution's values at the positions of a slice: `dtype` [slice shape].

    `begin`: where the slice begins in the whole, integers [axes], a tensor or known. `shapes`: (slice, whole), static.
    """
    slice_shape, whole_shape = (tuple(int(size) for size in shape) for shape in shapes)
    box = SliceGeometry.plan(slice_shape, whole_shape)
    size = math.prod(slice_shape)
    if size == 0:
        return tf.zeros(slice_shape, dtype)
    if size > MOST_ELEMENTS:
        axis, parts = _halves(begin, slice_shape)
        return tf.concat(
            [draw(distribution, key, start, (part, whole_shape), dtype, numbers) for start, part in parts], axis
        )
    padded = padded_rows(size)
    box = box.with_axes(SMALL_AXES) if padded in SMALL_ROWS[:2] else box
    flat = segment(distribution, dtype, padded, len(box.merged))(
        key_tensor(key),
        box.base(begin),
        tf.constant(box.geometry(), tf.uint64),
        # This makes an array first, because TensorFlow turns a list with a 64-bit integer into floats.
        tf.constant(
            np.array(numbers, _numbers_dtype(distribution, dtype).as_numpy_dtype), shape=[distribution.numbers]
        ),
    )
    return tf.reshape(flat if size == padded * ROW else flat[:size], slice_shape)


def padded_rows(size: int) -> int:
    """Rows of the segment that draws `size` elements."""
    rows = -(-size // ROW)
    for small in SMALL_ROWS:
        if rows <= small:
            return small
    unit = 1 << max(0, (rows - 1).bit_length() - 1 - LEADING_BITS)
    return -(-rows // unit) * unit


@functools.cache
def segment(
    distribution: Distribution, dtype: tf.DType, rows: int, axes: int
) -> tf.types.experimental.ConcreteFunction:
    """The compiled function of a distribution.

    It maps (key uint32 [2], base int64 [], geometry uint64 [4, axes - 1], numbers) to `dtype` [rows * ROW].
    """

    def values(key: tf.Tensor, base: tf.Tensor, geometry: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        high, low = counters(base, geometry, (rows, ROW), axes)
        word0, word1 = threefry_2x32(key[0], key[1], high, low)
        return tf.reshape(distribution.values(word0, word1, numbers, dtype), [rows * ROW])

    return as_xla_call(
        values,
        [
            tf.TensorSpec([2], tf.uint32),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([4, axes - 1], tf.uint64),
            tf.TensorSpec([distribution.numbers], _numbers_dtype(distribution, dtype)),
        ],
    )


def _numbers_dtype(distribution: Distribution, dtype: tf.DType) -> tf.DType:
    return distribution.numbers_dtype or computed_in(dtype)


def _halves(begin: Begin, slice_shape: tuple[int, ...]) -> tuple[int, list[tuple[Begin, tuple[int, ...]]]]:
    """The slice cut in two along its longest axis: the axis, and (begin, shape) of each part."""
    axis = int(np.argmax(slice_shape))
    first = slice_shape[axis] // 2
    shapes = [slice_shape[:axis] + (part,) + slice_shape[axis + 1 :] for part in (first, slice_shape[axis] - first)]
    if isinstance(begin, tf.Tensor):
        begin = tf.unstack(tf.cast(begin, tf.int64))
    moved = [start + first if each == axis else start for each, start in enumerate(begin)]
    return axis, [(begin, shapes[0]), (moved, shapes[1])]
