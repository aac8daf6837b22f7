"""Convolutions by TensorFlow's kernels: [batch, *spatial, channels] by [*taps, inner, outer].

They take one group, with two or three spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.ops.convolution._reshaping import (
    paddings_of,
    resized,
    transposed,
    with_zeros,
    without_gaps,
    without_padding,
)
from meshtf.ops.convolution._sliding import Sliding, single_windows, window_counts

NATIVE = (tf.bfloat16, tf.float32, tf.float64)


def is_native(x: tf.Tensor, w: tf.Tensor) -> bool:
    return x.dtype in NATIVE and w.shape[-3] == 1


def is_plain(x: tf.Tensor, other: tf.Tensor, sliding: Sliding) -> bool:
    """Whether TensorFlow's kernels take the arrays as they are: two spatial dimensions without an axis of groups."""
    return x.dtype in NATIVE and len(sliding.strides) == 2 and 0 not in (*x.shape, *other.shape)


def convolved_natively(x: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    x, padding = _padded(x, sliding, w.shape.as_list()[:-2])
    options = {"input": x, "filter": w, "strides": [1, *sliding.strides, 1], "padding": padding}
    if x.shape.rank == 5:
        return tf.raw_ops.Conv3D(**options)
    return tf.raw_ops.Conv2D(dilations=[1, *sliding.dilations, 1], **options)


def native_image_gradient(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    taps, size = w.shape.as_list()[:-2], [dy.shape[0], *sizes, w.shape[-2]]
    if dy.shape.rank == 4 and dy.shape[2] == taps[1] == 1 and dy.shape[1] > 1:
        # Along a column oneDNN multiplies zeros around dy, which is NaN for infinite weights. Along a row it does not.
        row, turned = transposed(dy, [0, 2, 1, 3]), transposed(w, [1, 0, 2, 3])
        return transposed(native_image_gradient(row, turned, sliding.reversed(), sizes[::-1]), [0, 2, 1, 3])
    op = tf.raw_ops.Conv2DBackpropInput if dy.shape.rank == 4 else tf.raw_ops.Conv3DBackpropInputV2
    given = {"filter": w, "out_backprop": dy, "strides": [1, *sliding.strides, 1]}
    # With SAME the kernel itself leaves out the padding, and no slice follows.
    if sliding.is_same(sizes, taps):
        return op(input_sizes=np.array(size, np.int32), padding="SAME", **given)
    counts = zip(dy.shape.as_list()[1:-1], taps, sliding.strides, strict=False)
    reached = [(n - 1) * stride + k for n, k, stride in counts]  # oneDNN multiplies the rest by zero
    dx = op(input_sizes=np.array([size[0], *reached, size[-1]], np.int32), padding="VALID", **given)
    return dx if not sliding.is_padded and reached == list(sizes) else without_padding(dx, sliding, sizes)


def native_kernel_gradient(x: tf.Tensor, dy: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    x, padding = _padded(x, sliding, sizes[:-2])
    op = tf.raw_ops.Conv2DBackpropFilter if x.shape.rank == 4 else tf.raw_ops.Conv3DBackpropFilterV2
    return op(
        input=x,
        filter_sizes=np.array(sizes, np.int32),
        out_backprop=dy,
        strides=[1, *sliding.strides, 1],
        padding=padding,
    )


def _padded(x: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> tuple[tf.Tensor, str]:
    """An image, and the padding left to the kernel. Kernels with explicit padding are slower than those without."""
    if sliding.is_same(x.shape.as_list()[1:-1], taps):
        return x, "SAME"
    return (with_zeros(x, paddings_of(sliding, 1)) if sliding.is_padded else x), "VALID"


def sound(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> tuple[tf.Tensor, Sliding]:
    """The same windows, over an image for which TensorFlow's CPU kernels read the right elements.

    oneDNN's kernels read outside of an image that has one channel, and one window along its width with a stride above
    1. Eigen's kernels in three dimensions read wrong places if there are elements between windows. So a single window
    gets the stride 1, and elements between windows are removed.
    """
    counts = window_counts(x, taps, sliding)
    single = single_windows(counts, sliding)
    apart = [x.shape.rank == 6 and stride > k for stride, k in zip(sliding.strides, taps, strict=False)]
    if not any(single + apart):
        return x, sliding
    x, strides = with_zeros(x, paddings_of(sliding, 2)), list(sliding.strides)
    for i, count in enumerate(counts):
        if single[i]:
            x, strides[i] = resized(x, i + 1, (taps[i] - 1) * sliding.dilations[i] + 1), 1
        elif apart[i]:
            x, strides[i] = without_gaps(x, i + 1, count, (strides[i], taps[i])), taps[i]
    return x, Sliding(tuple(strides), sliding.dilations, ((0, 0),) * len(strides))
