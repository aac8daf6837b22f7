"""Convolutions of whole local arrays and their gradients, exact for every stride and dilation.

Images are [batch, *spatial, groups, inner], kernels [*taps, groups, inner, outer], and results [batch, *windows,
groups, outer]. Without groups, all three may lack the axis. There are three ways to compute one:

- TensorFlow's kernels, for one or two spatial dimensions without dilation.
- Tap by tap, where those refuse on a CPU: one matrix product for each element of a window. For a 1-dimensional window
  of 3, y = x[0::s] w[0] + x[1::s] w[1] + x[2::s] w[2].
- One matrix product, if windows are single elements. oneDNN's convolution first reorders its kernel, which takes longer
  than the convolution in the last stage of ResNet-50. If windows are a stride apart, the product takes 0.3 to 0.6 of
  oneDNN's time for the gradient of the image, and 0.6 for the convolution.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.ops.algebra.wider_operands import wider_operands

_NATIVE = (tf.float32, tf.float64)
_WIDER = {
    **dict.fromkeys([tf.float16, tf.bfloat16], tf.float32),
    **dict.fromkeys([tf.int8, tf.int16, tf.uint8, tf.uint16], tf.int32),
    **dict.fromkeys([tf.uint32, tf.uint64], tf.int64),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Sliding:
    """The strides, the dilations and the [before, after] zeros of each spatial dimension."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]

    @property
    def is_dilated(self) -> bool:
        return max(self.dilations) > 1

    @property
    def is_padded(self) -> bool:
        return any(before or after for before, after in self.paddings)

    def is_same(self, sizes: Sequence[int], taps: Sequence[int]) -> bool:
        """Whether an image of these sizes is padded as TensorFlow pads for SAME."""
        return self.paddings == tuple(map(_same, sizes, taps, self.strides, self.dilations))

    def padded_sizes(self, sizes: Sequence[int]) -> list[int]:
        return [n + sum(padding) for n, padding in zip(sizes, self.paddings, strict=True)]


def _in_wider_dtype(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Computes 16-bit floats in float32: TensorFlow's own 16-bit gradient kernels on CPU were seen to crash.

    Small and unsigned integers are computed in int32 or int64, because TensorFlow has no matrix products for them.
    Modulo 2 to the number of their bits, the result is the same.
    """

    @functools.wraps(function)
    def wrapper(first: tf.Tensor, second: tf.Tensor, *rest: Any, **options: Any) -> tf.Tensor:
        wider = _WIDER.get(first.dtype)
        if wider is None:
            return function(first, second, *rest, **options)
        result = function(*wider_operands(first, second, wider), *rest, **options)
        return tf.cast(result, first.dtype)

    return wrapper


@_in_wider_dtype
def convolved(x: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """[batch, *windows, groups, outer]."""
    if _lacks_groups(x, sliding):
        # A 1x1 convolution is one matrix product, which is faster than any convolution kernel.
        if _is_product(x, w, sliding, w.shape.as_list()[:-2]):
            return _by_product(_in_windows(x, w.shape, sliding), _matrix(w))
        if _is_plain(x, w, sliding) and not any(_single_windows(_counts(x, w.shape, sliding), sliding)):
            return _native(x, w, sliding)
        return tf.squeeze(convolved(_grouped(x), _grouped(w, 2), sliding), [-2])
    # A single group is no group. The cases without groups are faster.
    if w.shape[-3] == 1 and _is_product(x, w, sliding, w.shape.as_list()[:-3]):
        return _grouped(convolved(_without_groups(x, 2), _kernel_without_groups(w), sliding))
    if x.shape.rank == 4:
        # TensorFlow has no one-dimensional kernel, so the image becomes one row high.
        y = convolved(x[:, None], w[None], _widened(sliding))
        return tf.squeeze(y, [1])
    groups, outer = w.shape[-3], w.shape[-1]
    # A sum of no products is zero, and no kernel is needed.
    if 0 in x.shape or 0 in w.shape:
        return tf.zeros([x.shape[0], *_counts(x, w.shape, sliding), groups, outer], x.dtype)
    if _is_native(x, w) and (x.shape.rank == 5 or not sliding.is_dilated):
        x, sliding = _sound(x, w.shape, sliding)
        y = _native(_without_groups(x, 2), _kernel_without_groups(w), sliding)
        return tf.reshape(y, [*y.shape[:-1], groups, outer])
    # No kernel of TensorFlow's fits. The rest is a sum over taps: each multiplies a strided slice of the image.
    counts = _counts(x, w.shape, sliding)
    x = tf.pad(x, _paddings(sliding, 2)) if sliding.is_padded else x
    total = None
    for tap in _taps(w.shape[:-3]):
        term = _times(_at_tap(x, tap, counts, sliding), w[tap])
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
    do not count, dy is zero. But zero times an infinite element of the kernel is NaN. The zeros that some ways of
    computing put around dy and between its elements do the same. If the kernel has such an element, no window
    contributes to elements outside of itself. The exception is oneDNN with windows a stride apart.
    """
    if _lacks_groups(dy, sliding):
        taps = w.shape.as_list()[:-2]
        if _is_product(dy, w, sliding, taps) and not counted:
            dx = _by_product(dy, _matrix(w), transpose_w=True)
            return dx if max(sliding.strides) == 1 else _cut(_with_gaps(dx, sliding), sliding, sizes)
        if _is_plain(dy, w, sliding) and not (sliding.is_dilated or counted or _leaves_gaps(sliding, taps)):
            return _native_image_gradient(dy, w, sliding, sizes)
        dx = image_gradient(_grouped(dy), _grouped(w, 2), sliding, sizes, counted)
        return tf.squeeze(dx, [-2])
    if w.shape[-3] == 1 and _is_product(dy, w, sliding, w.shape.as_list()[:-3]) and not counted:
        own = _without_groups(dy, 2), _kernel_without_groups(w)
        return _grouped(image_gradient(*own, sliding, sizes))
    if dy.shape.rank == 4:
        counted = {i + 1: mask for i, mask in counted.items()}
        dx = image_gradient(dy[:, None], w[None], _widened(sliding), [1, *sizes], counted)
        return tf.squeeze(dx, [1])
    if 0 in dy.shape or 0 in w.shape:
        return tf.zeros([dy.shape[0], *sizes, w.shape[-3], w.shape[-2]], dy.dtype)
    # Only infinite or NaN weights make the zeros matter, and integers have none.
    if not w.dtype.is_floating or not (counted or _multiplies_zeros(dy, w, sliding)):
        return _image_gradient_of_all(dy, w, sliding, sizes)
    return tf.cond(
        tf.reduce_all(tf.math.is_finite(w)),
        lambda: _image_gradient_of_all(dy, w, sliding, sizes),
        lambda: _image_gradient_of_some(dy, w, sliding, sizes, counted),
    )


@_in_wider_dtype
def kernel_gradient(x: tf.Tensor, dy: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> tf.Tensor:
    """[*taps, groups, inner, outer]."""
    if _lacks_groups(x, sliding):
        sizes = [*taps, x.shape[-1], dy.shape[-1]]
        if _is_product(x, dy, sliding, taps):
            own = _matrix(_in_windows(x, taps, sliding))
            return tf.reshape(tf.linalg.matmul(own, _matrix(dy), transpose_a=True), sizes)
        if _is_plain(x, dy, sliding) and not (sliding.is_dilated or _leaves_gaps(sliding, taps)):
            return _native_kernel_gradient(x, dy, sliding, sizes)
        return tf.squeeze(kernel_gradient(_grouped(x), _grouped(dy), sliding, taps), [-3])
    if x.shape[-2] == 1 and _is_product(x, dy, sliding, taps):
        return _grouped(kernel_gradient(_without_groups(x, 2), _without_groups(dy, 2), sliding, taps), 2)
    if x.shape.rank == 4:
        return tf.squeeze(kernel_gradient(x[:, None], dy[:, None], _widened(sliding), [1, *taps]), [0])
    groups, inner, outer = x.shape[-2], x.shape[-1], dy.shape[-1]
    if 0 in x.shape or 0 in dy.shape:
        return tf.zeros([*taps, groups, inner, outer], x.dtype)
    # For some windows that leave gaps, TensorFlow's kernel writes outside its memory (1x1 with strides (2, 1): it
    # crashes).
    if x.dtype in _NATIVE and groups == 1 and not (sliding.is_dilated or _leaves_gaps(sliding, taps)):
        sizes = [*taps, inner, outer]
        dw = _native_kernel_gradient(_without_groups(x, 2), _without_groups(dy, 2), sliding, sizes)
        return tf.reshape(dw, [*taps, groups, inner, outer])
    x = tf.pad(x, _paddings(sliding, 2)) if sliding.is_padded else x
    # Each tap has one matrix product: the channels of its elements by the channels of dy, summed over all windows.
    rows, terms = tf.transpose(tf.reshape(dy, [-1, groups, outer]), [1, 0, 2]), []
    for tap in _taps(taps):
        own = tf.reshape(_at_tap(x, tap, _spatial(dy), sliding), [-1, groups, inner])
        terms.append(tf.matmul(tf.transpose(own, [1, 2, 0]), rows))
    return tf.reshape(tf.stack(terms), [*taps, groups, inner, outer])


def kernel_gradient_of_some(
    x: tf.Tensor,
    dy: tf.Tensor,
    sliding: Sliding,
    taps: Sequence[int],
    counted: Mapping[int, tf.Tensor],
) -> tf.Tensor:
    """The gradient of the kernel if not all windows count.

    `counted` says which count, as bool [windows], for spatial dimensions without zeros around. For windows that do not
    count, dy is zero, but their elements may be infinite. These elements are set to zero tap by tap along these
    dimensions, because other windows have the same elements.
    """
    if not counted:
        return kernel_gradient(x, dy, sliding, taps)
    i = min(counted)
    axis, count, rest = i + 1, dy.shape[i + 1], {j: mask for j, mask in counted.items() if j > i}
    stride, dilation = sliding.strides[i], sliding.dilations[i]
    at_tap, shape = _side_by_side(sliding, i), x.shape.as_list()
    mask = tf.reshape(counted[i], [count if j == axis else 1 for j in range(len(shape))])
    terms = []
    for k in range(taps[i]):
        begin, size = k * dilation, (count - 1) * stride + 1
        steps = [stride if j == axis else 1 for j in range(len(shape))]
        end = [begin + size if j == axis else n for j, n in enumerate(shape)]
        own = tf.strided_slice(x, [begin if j == axis else 0 for j in range(len(shape))], end, steps)
        own = tf.where(mask, own, tf.zeros([], x.dtype))
        terms.append(kernel_gradient_of_some(own, dy, at_tap, [*taps[:i], 1, *taps[i + 1 :]], rest))
    return terms[0] if len(terms) == 1 else tf.concat(terms, i)


# By one product of matrices: [batch, *spatial, channels], [inner, outer]


def _is_product(x: tf.Tensor, other: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> bool:
    """Whether each window is one element, for one group or no axis of groups."""
    is_pointwise = max(taps) == 1 and not sliding.is_padded
    return x.dtype in _NATIVE and is_pointwise and 0 not in (*x.shape, *other.shape)


def _in_windows(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> tf.Tensor:
    """The elements that are windows, if windows have one element each."""
    for axis, (count, stride) in enumerate(zip(_counts(x, taps, sliding), sliding.strides, strict=True), start=1):
        if stride > 1:
            x = _without_gaps(x, axis, count, (stride, 1))
    return x


def _by_product(x: tf.Tensor, w: tf.Tensor, *, transpose_w: bool = False) -> tf.Tensor:
    y = tf.linalg.matmul(_matrix(x), w, transpose_b=transpose_w)
    return tf.reshape(y, [*x.shape[:-1], y.shape[-1]])


def _matrix(x: tf.Tensor) -> tf.Tensor:
    """x as a matrix, with all dimensions but the last as rows."""
    return tf.reshape(x, [math.prod(x.shape[:-1]), x.shape[-1]])


# TensorFlow's kernels: [batch, *spatial, channels], [*taps, inner, outer]


def _native(x: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    x, padding = _padded(x, sliding, w.shape.as_list()[:-2])
    options = {"input": x, "filter": w, "strides": [1, *sliding.strides, 1], "padding": padding}
    if x.shape.rank == 5:
        return tf.raw_ops.Conv3D(**options)
    return tf.raw_ops.Conv2D(dilations=[1, *sliding.dilations, 1], **options)


def _native_image_gradient(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    taps, size = w.shape.as_list()[:-2], [dy.shape[0], *sizes, w.shape[-2]]
    op = tf.raw_ops.Conv2DBackpropInput if dy.shape.rank == 4 else tf.raw_ops.Conv3DBackpropInputV2
    given = {"filter": w, "out_backprop": dy, "strides": [1, *sliding.strides, 1]}
    # With SAME the kernel itself leaves out the padding, and no slice follows.
    if sliding.is_same(sizes, taps):
        return op(input_sizes=size, padding="SAME", **given)
    counts = zip(dy.shape.as_list()[1:-1], taps, sliding.strides, strict=False)
    reached = [(n - 1) * stride + k for n, k, stride in counts]  # oneDNN multiplies the rest by zero
    dx = op(input_sizes=[size[0], *reached, size[-1]], padding="VALID", **given)
    return dx if not sliding.is_padded and reached == list(sizes) else _cut(dx, sliding, sizes)


def _native_kernel_gradient(x: tf.Tensor, dy: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    x, padding = _padded(x, sliding, sizes[:-2])
    op = tf.raw_ops.Conv2DBackpropFilter if x.shape.rank == 4 else tf.raw_ops.Conv3DBackpropFilterV2
    return op(input=x, filter_sizes=sizes, out_backprop=dy, strides=[1, *sliding.strides, 1], padding=padding)


def _padded(x: tf.Tensor, sliding: Sliding, taps: Sequence[int]) -> tuple[tf.Tensor, str]:
    """An image, and the padding left to the kernel. Kernels with explicit padding are slower than those without."""
    if sliding.is_same(x.shape.as_list()[1:-1], taps):
        return x, "SAME"
    return (tf.pad(x, _paddings(sliding, 1)) if sliding.is_padded else x), "VALID"


def _same(size: int, taps: int, stride: int, dilation: int) -> tuple[int, int]:
    lacking = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
    return lacking // 2, lacking - lacking // 2


def _leaves_gaps(sliding: Sliding, taps: Sequence[int]) -> bool:
    """Whether there are elements between windows."""
    return any(stride > k for stride, k in zip(sliding.strides, taps, strict=False))


def _sound(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> tuple[tf.Tensor, Sliding]:
    """The same windows, over an image for which TensorFlow's CPU kernels read the right elements.

    oneDNN's kernels read outside of an image that has one channel, and one window along its width with a stride above
    1. Eigen's kernels in three dimensions read wrong places if there are elements between windows. So a single window
    gets the stride 1, and elements between windows are removed.
    """
    counts = _counts(x, taps, sliding)
    single = _single_windows(counts, sliding)
    apart = [x.shape.rank == 6 and stride > k for stride, k in zip(sliding.strides, taps, strict=False)]
    if not any(single + apart):
        return x, sliding
    x, strides = tf.pad(x, _paddings(sliding, 2)), list(sliding.strides)
    for i, count in enumerate(counts):
        if single[i]:
            x, strides[i] = _resized(x, i + 1, (taps[i] - 1) * sliding.dilations[i] + 1), 1
        elif apart[i]:
            x, strides[i] = _without_gaps(x, i + 1, count, (strides[i], taps[i])), taps[i]
    return x, Sliding(tuple(strides), sliding.dilations, ((0, 0),) * len(strides))


def _single_windows(counts: Sequence[int], sliding: Sliding) -> list[bool]:
    """Whether the only window along each dimension has a stride above 1."""
    return [count == 1 and stride > 1 for count, stride in zip(counts, sliding.strides, strict=True)]


def _without_gaps(x: tf.Tensor, axis: int, count: int, sizes: tuple[int, int]) -> tf.Tensor:
    """The first elements of `count` segments of one stride each, as many as the kernel has.

    `sizes` are (stride, kernel).
    """
    stride, taps = sizes
    x = _resized(x, axis, count * stride)
    shape = x.shape.as_list()
    blocks = tf.reshape(x, [*shape[:axis], count, stride, *shape[axis + 1 :]])
    return tf.reshape(_resized(blocks, axis + 1, taps), [*shape[:axis], count * taps, *shape[axis + 1 :]])


def _resized(x: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    """x, cut or filled up with zeros at the end of an axis."""
    shape = x.shape.as_list()
    if size > shape[axis]:
        return tf.pad(x, [[0, size - shape[axis] if i == axis else 0] for i in range(len(shape))])
    return tf.slice(x, [0] * len(shape), [*shape[:axis], size, *shape[axis + 1 :]])


def _is_native(x: tf.Tensor, w: tf.Tensor) -> bool:
    return x.dtype in _NATIVE and w.shape[-3] == 1


def _is_plain(x: tf.Tensor, other: tf.Tensor, sliding: Sliding) -> bool:
    """Whether TensorFlow's kernels take it as it is: two spatial dimensions without an axis of groups."""
    return x.dtype in _NATIVE and len(sliding.strides) == 2 and 0 not in (*x.shape, *other.shape)


# Tap by tap


def _taps(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(n) for n in sizes))


def _at_tap(x: tf.Tensor, tap: Sequence[int], counts: Sequence[int], sliding: Sliding) -> tf.Tensor:
    """The element at one tap of every window."""
    begin = [0, *(k * d for k, d in zip(tap, sliding.dilations, strict=True)), 0, 0]
    steps = [1, *sliding.strides, 1, 1]
    spans = [(n - 1) * s + 1 for n, s in zip(counts, sliding.strides, strict=True)]
    end = [b + n for b, n in zip(begin, [x.shape[0], *spans, x.shape[-2], x.shape[-1]], strict=True)]
    return tf.strided_slice(x, begin, end, steps)


def _to_tap(term: tf.Tensor, tap: Sequence[int], sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    """The opposite of `_at_tap`: zeros between elements and around them, over the padded sizes."""
    term = _with_gaps(term, sliding)
    begin = [k * d for k, d in zip(tap, sliding.dilations, strict=True)]
    padded = sliding.padded_sizes(sizes)
    around = [[b, total - b - n] for b, n, total in zip(begin, _spatial(term), padded, strict=True)]
    return tf.pad(term, [[0, 0], *around, [0, 0], [0, 0]])


def _image_gradient_of_all(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    if _is_native(dy, w) and not sliding.is_dilated:
        dx = _native_image_gradient(_without_groups(dy, 2), _kernel_without_groups(w), sliding, sizes)
        return tf.reshape(dx, [*dx.shape[:-1], w.shape[-3], w.shape[-2]])
    if _is_native(dy, w) and dy.shape.rank == 5:
        return _cut(_turned(dy, w, sliding), sliding, sizes)
    total = None
    for tap in _taps(w.shape[:-3]):
        term = _to_tap(_times(dy, tf.linalg.matrix_transpose(w[tap])), tap, sliding, sizes)
        total = term if total is None else total + term
    return _cut(total, sliding, sizes)


def _multiplies_zeros(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> bool:
    """Whether `_image_gradient_of_all` multiplies zeros around dy or between its elements.

    TensorFlow's own kernels do so in three dimensions, oneDNN's do if there are elements between windows, and so does
    `_turned`.
    """
    is_flat = dy.shape.rank == 5
    has_gaps = is_flat and _leaves_gaps(sliding, w.shape.as_list())
    return _is_native(dy, w) and (sliding.is_dilated == is_flat or has_gaps)


def _image_gradient_of_some(
    dy: tf.Tensor, w: tf.Tensor, sliding: Sliding, sizes: Sequence[int], counted: Mapping[int, tf.Tensor]
) -> tf.Tensor:
    """The gradient of the image from the windows that count: all taps side by side, then added up along each
    dimension.
    """
    count, taps, windows = len(sizes), w.shape[:-3], _spatial(dy)
    groups, outer = w.shape[-3], w.shape[-1]
    # One product makes the terms of all taps. They cannot be masked after the sum, because each tap moves its term
    # elsewhere.
    beside = tf.transpose(w, [count, count + 2, *range(count), count + 1])
    total = _times(dy, tf.reshape(beside, [groups, outer, -1]))
    for i, mask in counted.items():
        mask = tf.reshape(mask, [windows[i] if axis == i + 1 else 1 for axis in range(total.shape.rank)])
        total = tf.where(mask, total, tf.zeros([], total.dtype))
    for i, size in enumerate(sizes):
        windows[i], along = size, _alone(sliding, i)
        parts = enumerate(tf.split(total, taps[i], -1))
        terms = [_to_tap(part, [k if j == i else 0 for j in range(count)], along, windows) for k, part in parts]
        total = _cut(functools.reduce(tf.add, terms), along, windows)
    return total


def _with_gaps(x: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """x with stride - 1 zeros between neighbours."""
    for axis, stride in enumerate(sliding.strides, start=1):
        if stride > 1:
            n, shape = x.shape[axis], x.shape.as_list()
            x = tf.pad(
                tf.expand_dims(x, axis + 1), [[0, stride - 1 if i == axis + 1 else 0] for i in range(len(shape) + 1)]
            )
            x = tf.reshape(x, [*shape[:axis], n * stride, *shape[axis + 1 :]])
            x = tf.slice(x, [0] * len(shape), [*shape[:axis], (n - 1) * stride + 1, *shape[axis + 1 :]])
    return x


def _turned(dy: tf.Tensor, w: tf.Tensor, sliding: Sliding) -> tf.Tensor:
    """The gradient over the padded image as a convolution of dy, with gaps between its elements, with the reversed
    kernel.
    """
    count = len(sliding.strides)
    # In the gradient each element gets its windows' weights from the other side, so the kernel is reversed.
    turned = tf.einsum("...io->...oi", tf.reverse(w, list(range(count))))
    reach = [(k - 1) * d for k, d in zip(w.shape, sliding.dilations, strict=False)]
    back = Sliding((1,) * count, sliding.dilations, tuple((r, r) for r in reach))
    return convolved(_with_gaps(dy, sliding), turned, back)


def _cut(x: tf.Tensor, sliding: Sliding, sizes: Sequence[int]) -> tf.Tensor:
    """x without the padding, and with zeros where no window reached."""
    batch, trailing = x.shape[0], x.shape.as_list()[1 + len(sizes) :]
    lacking = [max(0, b + n - have) for (b, _), n, have in zip(sliding.paddings, sizes, x.shape[1:], strict=False)]
    if any(lacking):
        x = tf.pad(x, [[0, 0], *([0, n] for n in lacking), *([0, 0] for _ in trailing)])
    begin = [0, *(before for before, _ in sliding.paddings), *(0 for _ in trailing)]
    return tf.slice(x, begin, [batch, *sizes, *trailing])


def _times(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """The product [.., groups, inner] by [groups, inner, outer]."""
    groups, inner, outer = w.shape
    shape = [*x.shape[:-1], outer]
    # One group needs no batched product and no transposes.
    if groups == 1:
        return tf.reshape(tf.matmul(tf.reshape(x, [-1, inner]), w[0]), shape)
    # In a depthwise convolution each group has one channel, so the product is one of elements.
    if inner == 1:
        return tf.reshape(tf.reshape(x, [-1, groups, 1]) * tf.reshape(w, [1, groups, outer]), shape)
    rows = tf.transpose(tf.reshape(x, [-1, groups, inner]), [1, 0, 2])
    return tf.reshape(tf.transpose(tf.matmul(rows, w), [1, 0, 2]), shape)


# Shapes


def _counts(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> list[int]:
    """The number of windows along each dimension of an image."""
    spatial = x.shape.as_list()[1 : 1 + len(sliding.strides)]
    steps = zip(sliding.padded_sizes(spatial), taps, sliding.strides, sliding.dilations, strict=False)
    return [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in steps]


def _spatial(x: tf.Tensor) -> list[int]:
    return x.shape.as_list()[1:-2]


def _lacks_groups(x: tf.Tensor, sliding: Sliding) -> bool:
    """Whether an image or a result has no axis of groups."""
    return x.shape.rank == len(sliding.strides) + 2


def _grouped(x: tf.Tensor, trailing: int = 1) -> tf.Tensor:
    """x with an axis of one group in front of its last `trailing` axes."""
    shape = x.shape.as_list()
    return tf.reshape(x, [*shape[:-trailing], 1, *shape[-trailing:]])


def _without_groups(x: tf.Tensor, trailing: int) -> tf.Tensor:
    shape = x.shape.as_list()
    return tf.reshape(x, [*shape[:-trailing], math.prod(shape[-trailing:])])


def _kernel_without_groups(w: tf.Tensor) -> tf.Tensor:
    shape = w.shape.as_list()
    return tf.reshape(w, [*shape[:-3], *shape[-2:]])


def _paddings(sliding: Sliding, trailing: int) -> list[tuple[int, int]]:
    return [(0, 0), *sliding.paddings, *((0, 0),) * trailing]


def _side_by_side(sliding: Sliding, i: int) -> Sliding:
    """The windows of one dimension side by side, without zeros around them."""
    strides, dilations, paddings = list(sliding.strides), list(sliding.dilations), list(sliding.paddings)
    strides[i], dilations[i], paddings[i] = 1, 1, (0, 0)
    return Sliding(tuple(strides), tuple(dilations), tuple(paddings))


def _alone(sliding: Sliding, i: int) -> Sliding:
    """The windows of one dimension. Along all others, windows are one element each, side by side."""
    paddings = [padding if j == i else (0, 0) for j, padding in enumerate(sliding.paddings)]
    strides, dilations = ([n if j == i else 1 for j, n in enumerate(x)] for x in (sliding.strides, sliding.dilations))
    return Sliding(tuple(strides), tuple(dilations), tuple(paddings))


def _widened(sliding: Sliding) -> Sliding:
    """One spatial dimension as two, the first of size 1."""
    return Sliding((1, *sliding.strides), (1, *sliding.dilations), ((0, 0), *sliding.paddings))
