"""Views, cuts and zeros of local arrays: [batch, *spatial, groups, inner], or without the axis of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.ops.convolution._sliding import Sliding
from meshtf.planning.local_work.sliced import sliced


def reshaped(x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """x in other sizes. Here and below, TensorFlow converts an array three times as fast as a list."""
    return tf.reshape(x, np.array(sizes, np.int32))


def transposed(x: tf.Tensor, permutation: Sequence[int]) -> tf.Tensor:
    """x with its axes in another order."""
    return tf.transpose(x, np.array(permutation, np.int32))


def strided(x: tf.Tensor, begin: Sequence[int], end: Sequence[int], steps: Sequence[int]) -> tf.Tensor:
    """Every `steps`-th element of x from `begin` to before `end`, along each axis."""
    return tf.strided_slice(x, *(np.array(places, np.int32) for places in (begin, end, steps)))


def with_zeros(x: tf.Tensor, around: Sequence[Sequence[int]]) -> tf.Tensor:
    """x with [before, after] zeros along each axis."""
    return tf.pad(x, np.array(around, np.int32))


def paddings_of(sliding: Sliding, trailing: int) -> list[tuple[int, int]]:
    return [(0, 0), *sliding.paddings, *((0, 0),) * trailing]


def grouped(x: tf.Tensor, trailing: int = 1) -> tf.Tensor:
    """x with an axis of one group in front of its last `trailing` axes."""
    shape = x.shape.as_list()
    return reshaped(x, [*shape[:-trailing], 1, *shape[-trailing:]])


def without_groups(x: tf.Tensor, trailing: int) -> tf.Tensor:
    shape = x.shape.as_list()
    return reshaped(x, [*shape[:-trailing], math.prod(shape[-trailing:])])


def kernel_without_groups(w: tf.Tensor) -> tf.Tensor:
    shape = w.shape.as_list()
    return reshaped(w, [*shape[:-3], *shape[-2:]])


def matrix(x: tf.Tensor) -> tf.Tensor:
    """x as a matrix, with all dimensions but the last as rows."""
    return reshaped(x, [math.prod(x.shape[:-1]), x.shape[-1]])


def resized(x: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    """x, cut or filled up with zeros at the end of an axis."""
    shape = x.shape.as_list()
    if size > shape[axis]:
        return with_zeros(x, [[0, size - shape[axis] if i == axis else 0] for i in range(len(shape))])
    return sliced(x, [0] * len(shape), [*shape[:axis], size, *shape[axis + 1 :]])


def without_gaps(x: tf.Tensor, axis: int, count: int, sizes: tuple[int, int]) -> tf.Tensor:
    """The first elements of `count` segments along an axis. Each segment is one stride long.

    `sizes` are (stride, kernel): the length of a segment, and how many of its elements are kept.
    """
    stride, taps = sizes
    x = resized(x, axis, count * stride)
    shape = x.shape.as_list()
    blocks = reshaped(x, [*shape[:axis], count, stride, *shape[axis + 1 :]])
    return reshaped(resized(blocks, axis + 1, taps), [*shape[:axis], count * taps, *shape[axis + 1 :]])


def with_gaps(x: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """x with stride - 1 zeros between neighbours."""
    for axis, stride in enumerate(sliding.strides, start=1):
        if stride > 1:
            n, shape = x.shape[axis], x.shape.as_list()
            x = with_zeros(
                tf.expand_dims(x, axis + 1), [[0, stride - 1 if i == axis + 1 else 0] for i in range(len(shape) + 1)]
            )
            x = reshaped(x, [*shape[:axis], n * stride, *shape[axis + 1 :]])
            x = sliced(x, [0] * len(shape), [*shape[:axis], (n - 1) * stride + 1, *shape[axis + 1 :]])
    return x


def without_padding(x: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    """x without the padding, and with zeros where no window reached."""
    batch, trailing = x.shape[0], x.shape.as_list()[1 + len(sizes) :]
    lacking = [max(0, b + n - have) for (b, _), n, have in zip(sliding.paddings, sizes, x.shape[1:], strict=False)]
    if any(lacking):
        x = with_zeros(x, [[0, 0], *([0, n] for n in lacking), *([0, 0] for _ in trailing)])
    begin = [0, *(before for before, _ in sliding.paddings), *(0 for _ in trailing)]
    return sliced(x, begin, [batch, *sizes, *trailing])
