"""Positions of a slice's elements in the whole tensor: planned in Python, counted in a compiled segment.

A slice is a box of the whole. Element number i of the slice (row-major) has position `base + sum over axes of
index(axis, i) * stride(axis)`. Axes that are contiguous in the whole are merged first, so most slices have one axis
left, or two. The columns 1 and 2 of a [2, 3] tensor have base 1 and two axes, (size 2, stride 3) and (size 2, stride
1): their positions are 1, 2, 4, 5.

Sizes and strides reach the segment as numbers, not as shapes. Slices of different geometry therefore share one compiled
segment.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.errors import ShapeError

Begin: TypeAlias = tf.Tensor | np.ndarray | Sequence[int | tf.Tensor]
"""The place where a slice begins in the whole: an integer tensor [axes], or a number for each axis, which may be a
tensor.
"""

INDEX_BITS = 31  # slices are drawn in parts of at most 2**30 elements, so an index is a positive int32


@dataclasses.dataclass(frozen=True)
class SliceGeometry:
    """The geometry of a slice in its whole, except for the place where it begins."""

    strides: tuple[int, ...]  # elements of the whole between neighbours, for every axis of the tensor
    merged: tuple[tuple[int, int], ...]  # (size, stride) of the axes that remain, outermost first; the last stride is 1

    @classmethod
    def plan(cls, slice_shape: Sequence[int], whole_shape: Sequence[int]) -> SliceGeometry:
        """The geometry of a slice.

        Raises:
          ShapeError: the shapes do not fit each other, or the whole has 2**63 elements or more.
        """
        check_shapes(slice_shape, whole_shape)
        strides = tuple(math.prod(whole_shape[axis + 1 :]) for axis in range(len(whole_shape)))
        merged: list[tuple[int, int]] = [(1, 1)]
        for size, stride in reversed([pair for pair in zip(slice_shape, strides, strict=True) if pair[0] > 1]):
            inner_size, inner_stride = merged[0]
            if stride == inner_size * inner_stride:
                merged[0] = (size * inner_size, inner_stride)
            else:
                merged.insert(0, (size, stride))
        return cls(strides, tuple(merged))

    def with_axes(self, fewest: int) -> SliceGeometry:
        """The same slice, with axes of size 1 in front of its own until there are `fewest`."""
        ones = ((1, 1),) * (fewest - len(self.merged))
        return dataclasses.replace(self, merged=ones + self.merged)

    def geometry(self) -> np.ndarray:
        """uint64 [4, axes - 1], inner axes first: size of the inner axis, its reciprocal and shift, stride outside it.

        A division by a size known only at run time is slow; `index * reciprocal >> shift` is the quotient, exactly, for
        every index below 2**31 (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
        """
        columns = []
        for (_, stride), (inner_size, _) in zip(self.merged[:-1], self.merged[1:], strict=True):
            shift = INDEX_BITS + (inner_size - 1).bit_length()
            columns.insert(0, (inner_size, -(-(1 << shift) // inner_size), shift, stride))
        return np.array(columns, np.uint64).reshape(-1, 4).T

    def base(self, begin: Begin) -> tf.Tensor:
        """Position in the whole of the slice's first element: int64 scalar. `begin`: integers [axes]."""
        if not self.strides:
            return tf.constant(0, tf.int64)
        if isinstance(begin, tf.Tensor):
            return tf.reduce_sum(tf.cast(begin, tf.int64) * tf.constant(self.strides, tf.int64))
        place, known = tf.constant(0, tf.int64), 0
        for start, stride in zip(begin, self.strides, strict=True):
            if isinstance(start, tf.Tensor):
                place += tf.cast(start, tf.int64) * stride
            else:
                known += int(start) * stride
        return place + known if any(isinstance(start, tf.Tensor) for start in begin) else tf.constant(known, tf.int64)


def check_shapes(slice_shape: Sequence[int], whole_shape: Sequence[int]) -> None:
    """Checks that a slice of one shape can be cut from a whole of the other.

    Raises:
      ShapeError: it cannot, or the whole has 2**63 elements or more.
    """
    if len(slice_shape) != len(whole_shape):
        raise ShapeError(f"random bits: slice {slice_shape} and whole {whole_shape} differ in their number of axes")
    if any(not 0 <= part <= whole for part, whole in zip(slice_shape, whole_shape, strict=True)):
        raise ShapeError(f"random bits: slice {slice_shape} is larger than the whole {whole_shape}, or negative")
    if math.prod(whole_shape) >= 2**63:
        raise ShapeError(f"random bits: the whole {whole_shape} has 2**63 elements or more; positions have 63 bits")


def counters(base: tf.Tensor, geometry: tf.Tensor, shape: tuple[int, int], axes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """High and low words (uint32 `shape`) of the positions of all elements of a flat slice, padded to `shape`.

    `base`: int64 []. `geometry`: uint64 [4, axes - 1] of `SliceGeometry.geometry`. Elements beyond the slice's end are
    drawn too, from positions without meaning. The caller cuts them off.
    """
    # XLA has no range of an unsigned type, and stores a range as a constant. Two short ranges make the whole one.
    row = tf.cast(tf.range(shape[0], dtype=tf.int32)[:, tf.newaxis] * shape[1], tf.uint64)
    column = tf.range(shape[1], dtype=tf.int32)[tf.newaxis, :]
    if axes == 1:
        return _add_low(_split(tf.cast(base, tf.uint64) + row), tf.cast(column, tf.uint32))
    index = row + tf.cast(column, tf.uint64)
    position, stride = tf.cast(base, tf.uint64), tf.constant(1, tf.uint64)
    for size, reciprocal, shift, outer_stride in (tf.unstack(geometry[:, axis]) for axis in range(axes - 1)):
        quotient = tf.bitwise.right_shift(index * reciprocal, shift)
        position = position + (index - quotient * size) * stride
        index, stride = quotient, outer_stride
    return _split(position + index * stride)


def _split(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    high = tf.bitwise.right_shift(position, tf.constant(32, tf.uint64))
    return tf.cast(high, tf.uint32), tf.cast(position, tf.uint32)


def _add_low(words: tuple[tf.Tensor, tf.Tensor], addend: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The sum of a position and a number, in two words of 32 bits. A vector holds twice as many of these as of 64."""
    low = words[1] + addend
    return words[0] + tf.cast(low < addend, tf.uint32), low
