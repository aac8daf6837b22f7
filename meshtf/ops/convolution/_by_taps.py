"""Convolutions tap by tap: one product for each element of a window, of strided slices of the image."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import tensorflow as tf

from meshtf.ops.convolution._reshaping import (
    reshaped,
    strided,
    transposed,
    with_gaps,
    with_zeros,
    without_padding,
)
from meshtf.ops.convolution._sliding import Sliding, alone, spatial


def at_tap(x: tf.Tensor, tap: Sequence[int], counts: Sequence[int], sliding: Sliding) -> tf.Tensor:
    """The element at one tap of every window."""
    begin = [0, *(k * d for k, d in zip(tap, sliding.dilations, strict=True)), 0, 0]
    steps = [1, *sliding.strides, 1, 1]
    spans = [(n - 1) * s + 1 for n, s in zip(counts, sliding.strides, strict=True)]
    end = [b + n for b, n in zip(begin, [x.shape[0], *spans, x.shape[-2], x.shape[-1]], strict=True)]
    return strided(x, begin, end, steps)


def to_tap(term: tf.Tensor, tap: Sequence[int], sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    """The opposite of `at_tap`: zeros between elements and around them, over the padded sizes."""
    term = with_gaps(term, sliding)
    begin = [k * d for k, d in zip(tap, sliding.dilations, strict=True)]
    padded = sliding.padded_sizes(sizes)
    around = [[b, total - b - n] for b, n, total in zip(begin, spatial(term), padded, strict=True)]
    return with_zeros(term, [[0, 0], *around, [0, 0], [0, 0]])


def product_by_groups(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """The product [.., groups, inner] by [groups, inner, outer]."""
    groups, inner, outer = w.shape
    shape = [*x.shape[:-1], outer]
    # One group needs no batched product and no transposes.
    if groups == 1:
        return reshaped(tf.matmul(reshaped(x, [-1, inner]), w[0]), shape)
    # In a depthwise convolution each group has one channel, so the product is one of elements.
    if inner == 1:
        return reshaped(reshaped(x, [-1, groups, 1]) * reshaped(w, [1, groups, outer]), shape)
    rows = transposed(reshaped(x, [-1, groups, inner]), [1, 0, 2])
    return reshaped(transposed(tf.matmul(rows, w), [1, 0, 2]), shape)


def image_gradient_of_some(
    dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int], counted: Mapping[int, tf.Tensor]
) -> tf.Tensor:
    """The image's gradient from the windows that count. It computes all taps at once, and adds them up by dimension."""
    count, taps, windows = len(sizes), w.shape[:-3], spatial(dy)
    groups, outer = w.shape[-3], w.shape[-1]
    # One product makes the terms of all taps. They cannot be masked after the sum, because each tap moves its term
    # elsewhere.
    beside = transposed(w, [count, count + 2, *range(count), count + 1])
    total = product_by_groups(dy, reshaped(beside, [groups, outer, -1]))
    for i, mask in counted.items():
        mask = reshaped(mask, [windows[i] if axis == i + 1 else 1 for axis in range(total.shape.rank)])
        total = tf.where(mask, total, tf.zeros([], total.dtype))
    for i, size in enumerate(sizes):
        windows[i], along = size, alone(sliding, i)
        parts = enumerate(tf.split(total, taps[i], -1))
        terms = [to_tap(part, [k if j == i else 0 for j in range(count)], along, windows) for k, part in parts]
        total = without_padding(functools.reduce(tf.add, terms), along, windows)
    return total
