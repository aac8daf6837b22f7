"""Convolutions of whole local arrays and their gradients, exact for every stride and dilation.

Images are [batch, *spatial, groups, inner], kernels [*taps, groups, inner, outer], and results [batch, *windows,
groups, outer]. Without groups, all three may lack the axis. There are three ways to compute one:

- TensorFlow's kernels, for one group of float32 or float64, in most cases without dilation. Where XLA compiles them,
  also for bfloat16, in two dimensions and without an axis of groups.
- Tap by tap, where TensorFlow's CPU kernels fail: one matrix product for each element of a window. For a 1-dimensional
  window of 3, y = x[0::s] w[0] + x[1::s] w[1] + x[2::s] w[2].
- One matrix product, if windows are single elements. oneDNN's convolution first reorders its kernel, which takes longer
  than the convolution in the last stage of ResNet-50. If windows are a stride apart, the product takes 0.3 to 0.6 of
  oneDNN's time for the gradient of the image, and 0.6 for the convolution.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.ops.algebra.wider_operands import wider_operands
from meshtf.ops.convolution._by_taps import at_tap, image_gradient_of_some, product_by_groups, to_tap
from meshtf.ops.convolution._native import (
    NATIVE,
    convolved_natively,
    is_native,
    is_plain,
    native_image_gradient,
    native_kernel_gradient,
    sound,
)
from meshtf.ops.convolution._reshaping import (
    grouped,
    kernel_without_groups,
    matrix,
    paddings_of,
    reshaped,
    strided,
    transposed,
    with_gaps,
    with_zeros,
    without_gaps,
    without_groups,
    without_padding,
)
from meshtf.ops.convolution._sliding import (
    Sliding,
    lacks_groups,
    leaves_gaps,
    side_by_side,
    single_windows,
    spatial,
    taps_of,
    widened,
    window_counts,
)

_WIDER = {
    **dict.fromkeys([tf.float16, tf.bfloat16], tf.float32),
    **dict.fromkeys([tf.int8, tf.int16, tf.uint8, tf.uint16], tf.int32),
    **dict.fromkeys([tf.uint32, tf.uint64], tf.int64),
}


def _in_wider_dtype(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Computes 16-bit floats in float32: TensorFlow's own 16-bit gradient kernels on CPU were seen to crash.

    With `in_bfloat16`, bfloat16 stays as it is where one kernel sums everything. A sum over taps would be rounded at
    each tap.

    Small and unsigned integers are computed in int32 or int64, because TensorFlow has no matrix products for them.
    Modulo 2 to the number of their bits, the result is the same.
    """

    @functools.wraps(function)
    def wrapper(
        first: tf.Tensor, second: tf.Tensor, sliding: Sliding, *rest: Any, in_bfloat16: bool = False, **options: Any
    ) -> tf.Tensor:
        wider = _WIDER.get(first.dtype)
        # Without an axis of groups, `function` calls one kernel, or this wrapper again.
        if wider is None or (in_bfloat16 and first.dtype == tf.bfloat16 and lacks_groups(first, sliding)):
            return function(first, second, sliding, *rest, **options)
        result = function(*wider_operands(first, second, wider), sliding, *rest, **options)
        return tf.cast(result, first.dtype)

    return wrapper


@_in_wider_dtype
def convolved(x: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """[batch, *windows, groups, outer]."""
    if lacks_groups(x, sliding):
        # A 1x1 convolution is one matrix product, which is faster than any convolution kernel.
        if _is_product(x, w, sliding, w.shape.as_list()[:-2]):
            return _by_product(_in_windows(x, w.shape, sliding), matrix(w))
        if is_plain(x, w, sliding) and not any(single_windows(window_counts(x, w.shape, sliding), sliding)):
            return convolved_natively(x, w, sliding)
        return tf.squeeze(convolved(grouped(x), grouped(w, 2), sliding), [-2])
    # A single group is the same as no groups. The code without groups is faster.
    if w.shape[-3] == 1 and _is_product(x, w, sliding, w.shape.as_list()[:-3]):
        return grouped(convolved(without_groups(x, 2), kernel_without_groups(w), sliding))
    if x.shape.rank == 4:
        # TensorFlow has no one-dimensional kernel, so the image becomes one row high.
        y = convolved(x[:, None], w[None], widened(sliding))
        return tf.squeeze(y, [1])
    groups, outer = w.shape[-3], w.shape[-1]
    # An empty sum of products is zero, and needs no kernel.
    if 0 in x.shape or 0 in w.shape:
        return tf.zeros([x.shape[0], *window_counts(x, w.shape, sliding), groups, outer], x.dtype)
    if is_native(x, w) and (x.shape.rank == 5 or not sliding.is_dilated):
        x, sliding = sound(x, w.shape, sliding)
        y = convolved_natively(without_groups(x, 2), kernel_without_groups(w), sliding)
        return reshaped(y, [*y.shape[:-1], groups, outer])
    # No kernel of TensorFlow's fits. The rest is a sum over taps: each multiplies a strided slice of the image.
    counts = window_counts(x, w.shape, sliding)
    x = with_zeros(x, paddings_of(sliding, 2)) if sliding.is_padded else x
    total = None
    for tap in taps_of(w.shape[:-3]):
        term = product_by_groups(at_tap(x, tap, counts, sliding), w[tap])
        total = term if total is None else total + term
    return total


@_in_wider_dtype
def image_gradient(
    dy: tf.Tensor,
    w: tf.Tensor,
    sliding: Sliding,
    sizes: Sequence[int],
    counted: Mapping[int, tf.Tensor] = types.MappingProxyType({}),
) -> tf.Tensor:
    """The gradient of the image, [batch, *sizes, groups, inner].

    `counted` says which windows count, as bool [windows], for spatial dimensions in which not all do. For windows that
    do not count, dy is zero. But zero times an infinite element of the kernel is NaN. The same is true of the zeros
    that some methods put around dy and between its elements. If the kernel has such an element, a slower method lets no
    window contribute to elements outside of itself. The exception is oneDNN with windows a stride apart.
    """
    if lacks_groups(dy, sliding):
        taps = w.shape.as_list()[:-2]
        if _is_product(dy, w, sliding, taps) and not counted:
            dx = _by_product(dy, matrix(w), transpose_w=True)
            return dx if max(sliding.strides) == 1 else without_padding(with_gaps(dx, sliding), sliding, sizes)
        if is_plain(dy, w, sliding) and not (sliding.is_dilated or counted or leaves_gaps(sliding, taps)):
            return native_image_gradient(dy, w, sliding, sizes)
        dx = image_gradient(grouped(dy), grouped(w, 2), sliding, sizes, counted)
        return tf.squeeze(dx, [-2])
    if w.shape[-3] == 1 and _is_product(dy, w, sliding, w.shape.as_list()[:-3]) and not counted:
        own = without_groups(dy, 2), kernel_without_groups(w)
        return grouped(image_gradient(*own, sliding, sizes))
    if dy.shape.rank == 4:
        counted = {i + 1: mask for i, mask in counted.items()}
        dx = image_gradient(dy[:, None], w[None], widened(sliding), [1, *sizes], counted)
        return tf.squeeze(dx, [1])
    if 0 in dy.shape or 0 in w.shape:
        return tf.zeros([dy.shape[0], *sizes, w.shape[-3], w.shape[-2]], dy.dtype)
    # Only infinite or NaN weights make the zeros matter, and integers have none.
    if not w.dtype.is_floating or not (counted or _multiplies_zeros(dy, w, sliding)):
        return _image_gradient_of_all(dy, w, sliding, sizes)
    return tf.cond(
        tf.reduce_all(tf.math.is_finite(w)),
        lambda: _image_gradient_of_all(dy, w, sliding, sizes),
        lambda: image_gradient_of_some(dy, w, sliding, sizes, counted),
    )


@_in_wider_dtype
def kernel_gradient(x: tf.Tensor, dy: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> tf.Tensor:
    """[*taps, groups, inner, outer]."""
    if lacks_groups(x, sliding):
        sizes = [*taps, x.shape[-1], dy.shape[-1]]
        if _is_product(x, dy, sliding, taps):
            own = matrix(_in_windows(x, taps, sliding))
            return reshaped(tf.linalg.matmul(own, matrix(dy), transpose_a=True), sizes)
        if is_plain(x, dy, sliding) and not (sliding.is_dilated or leaves_gaps(sliding, taps)):
            return native_kernel_gradient(x, dy, sliding, sizes)
        return tf.squeeze(kernel_gradient(grouped(x), grouped(dy), sliding, taps), [-3])
    if x.shape[-2] == 1 and _is_product(x, dy, sliding, taps):
        return grouped(kernel_gradient(without_groups(x, 2), without_groups(dy, 2), sliding, taps), 2)
    if x.shape.rank == 4:
        return tf.squeeze(kernel_gradient(x[:, None], dy[:, None], widened(sliding), [1, *taps]), [0])
    groups, inner, outer = x.shape[-2], x.shape[-1], dy.shape[-1]
    if 0 in x.shape or 0 in dy.shape:
        return tf.zeros([*taps, groups, inner, outer], x.dtype)
    # For some windows that leave gaps, TensorFlow's kernel writes outside its memory (1x1 with strides (2, 1): it
    # crashes).
    if x.dtype in NATIVE and groups == 1 and not (sliding.is_dilated or leaves_gaps(sliding, taps)):
        sizes = [*taps, inner, outer]
        dw = native_kernel_gradient(without_groups(x, 2), without_groups(dy, 2), sliding, sizes)
        return reshaped(dw, [*taps, groups, inner, outer])
    x = with_zeros(x, paddings_of(sliding, 2)) if sliding.is_padded else x
    # Each tap has one matrix product: the channels of its elements by the channels of dy, summed over all windows.
    rows, terms = transposed(reshaped(dy, [-1, groups, outer]), [1, 0, 2]), []
    for tap in taps_of(taps):
        own = reshaped(at_tap(x, tap, spatial(dy), sliding), [-1, groups, inner])
        terms.append(tf.matmul(transposed(own, [1, 2, 0]), rows))
    return reshaped(tf.stack(terms), [*taps, groups, inner, outer])


def kernel_gradient_of_some(
    x: tf.Tensor,
    dy: tf.Tensor,
    sliding: Sliding,
    taps: Sequence[int],
    counted: Mapping[int, tf.Tensor],
    *,
    in_bfloat16: bool = False,
) -> tf.Tensor:
    """The gradient of the kernel if not all windows count.

    `counted` says which count, as bool [windows], for spatial dimensions without zeros around. For windows that do not
    count, dy is zero, but their elements may be infinite. These elements are set to zero tap by tap along these
    dimensions, because other windows have the same elements.
    """
    if not counted:
        return kernel_gradient(x, dy, sliding, taps, in_bfloat16=in_bfloat16)
    i = min(counted)
    axis, count, rest = i + 1, dy.shape[i + 1], {j: mask for j, mask in counted.items() if j > i}
    stride, dilation = sliding.strides[i], sliding.dilations[i]
    at_tap, shape = side_by_side(sliding, i), x.shape.as_list()
    mask = reshaped(counted[i], [count if j == axis else 1 for j in range(len(shape))])
    # For one tap, an element belongs to one window, so it can be set to zero for that window alone.
    terms = []
    for k in range(taps[i]):
        begin, size = k * dilation, (count - 1) * stride + 1
        steps = [stride if j == axis else 1 for j in range(len(shape))]
        end = [begin + size if j == axis else n for j, n in enumerate(shape)]
        own = strided(x, [begin if j == axis else 0 for j in range(len(shape))], end, steps)
        own = tf.where(mask, own, tf.zeros([], x.dtype))
        terms.append(kernel_gradient_of_some(own, dy, at_tap, [*taps[:i], 1, *taps[i + 1 :]], rest))
    return terms[0] if len(terms) == 1 else tf.concat(terms, i)


def _is_product(x: tf.Tensor, other: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> bool:
    """Whether each window is one element, for one group or no axis of groups."""
    is_pointwise = max(taps) == 1 and not sliding.is_padded
    return x.dtype in NATIVE and is_pointwise and 0 not in (*x.shape, *other.shape)


def _in_windows(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> tf.Tensor:
    """The elements that are windows, if windows have one element each."""
    for axis, (count, stride) in enumerate(zip(window_counts(x, taps, sliding), sliding.strides, strict=True), start=1):
        if stride > 1:
            x = without_gaps(x, axis, count, (stride, 1))
    return x


def _by_product(x: tf.Tensor, w: tf.Tensor, *, transpose_w: bool = False) -> tf.Tensor:
    y = tf.linalg.matmul(matrix(x), w, transpose_b=transpose_w)
    return reshaped(y, [*x.shape[:-1], y.shape[-1]])


def _image_gradient_of_all(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    if is_native(dy, w) and not sliding.is_dilated:
        dx = native_image_gradient(without_groups(dy, 2), kernel_without_groups(w), sliding, sizes)
        return reshaped(dx, [*dx.shape[:-1], w.shape[-3], w.shape[-2]])
    if is_native(dy, w) and dy.shape.rank == 5:
        return without_padding(_turned(dy, w, sliding), sliding, sizes)
    total = None
    for tap in taps_of(w.shape[:-3]):
        term = to_tap(product_by_groups(dy, tf.linalg.matrix_transpose(w[tap])), tap, sliding, sizes)
        total = term if total is None else total + term
    return without_padding(total, sliding, sizes)


def _multiplies_zeros(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> bool:
    """Whether `_image_gradient_of_all` multiplies zeros around dy or between its elements.

    TensorFlow's own kernels do so in three dimensions. oneDNN's do if there are elements between windows. `_turned`
    always does.
    """
    is_flat = dy.shape.rank == 5
    has_gaps = is_flat and leaves_gaps(sliding, w.shape.as_list())
    return is_native(dy, w) and (sliding.is_dilated == is_flat or has_gaps)


def _turned(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """The gradient over the padded image: dy, with gaps between its elements, convolved with the reversed kernel."""
    count = len(sliding.strides)
    # In the gradient each element gets its windows' weights from the other side, so the kernel is reversed.
    turned = tf.einsum("...io->...oi", tf.reverse(w, list(range(count))))
    reach = [(k - 1) * d for k, d in zip(w.shape, sliding.dilations, strict=False)]
    back = Sliding((1,) * count, sliding.dilations, tuple((r, r) for r in reach))
    return convolved(with_gaps(dy, sliding), turned, back)
