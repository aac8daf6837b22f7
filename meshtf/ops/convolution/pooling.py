"""Maxima and means over windows."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import divide
from meshtf.ops.convolution._arguments import Steps, check_padding, numbers_by_name
from meshtf.ops.convolution._geometry import Slide, slide
from meshtf.ops.convolution._pooling_operations import MaxPoolOperation, WindowSumOperation
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.remainders_powers_extrema import maximum, minimum
from meshtf.ops.inputs.constants import range as range_along


@language_function
def max_pool(
    x: Tensor, ksize: Mapping[str, int], strides: Steps = None, padding: str = "VALID", name: str | None = None
) -> Tensor:
    """The largest element of each window. If several are equal, the first one gets the gradient.

    Args:
      x: a tensor of an ordered dtype.
      ksize: sizes of the windows along dimensions of x, as {"height": 2, "width": 2}.
      strides: the steps from one window to the next: a number, one for each dimension of `ksize`, or some by name. The
        default is the sizes of the windows.
      padding: "VALID" (only windows that lie inside), "SAME" (size / stride windows, rounded up; elements outside do
        not count), or "SYMMETRIC" (as many, with their middles on every `stride`-th element, as in PyTorch's models).
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or a window does not fit in.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> mtf.max_pool(mtf.ones(mesh, "batch:2 height:4 width:6 channels:3"), {"height": 2, "width": 3})
      max_pool_1 [batch:2 height:2 width:2 channels:3] float32
      >>> value(mtf.max_pool(mtf.constant(mesh, [1.0, 5.0, 2.0, 3.0], "n:4"), {"n": 2}, strides=1))
      array([5., 5., 3.], dtype=float32)
    """
    if check_tensor(x).dtype == tf.bool or x.dtype.is_complex:
        raise DtypeError(f"{x.dtype.name} has no largest element; convert with mtf.cast")
    for windows in reversed(_slides(x, ksize, strides, padding)):  # the first of a window is then in row-major order
        x = MaxPoolOperation(x, windows, name=name or "max_pool").outputs[0]
    return x


@language_function
def avg_pool(
    x: Tensor, ksize: Mapping[str, int], strides: Steps = None, padding: str = "VALID", name: str | None = None
) -> Tensor:
    """The mean of each window. Elements outside do not count, as in TensorFlow.

    Args:
      x: a floating tensor.
      ksize: sizes of the windows along dimensions of x, as {"height": 2, "width": 2}.
      strides: the steps from one window to the next: a number, one for each dimension of `ksize`, or some by name. The
        default is the sizes of the windows.
      padding: "VALID" (only windows that lie inside), "SAME" (size / stride windows, rounded up), or "SYMMETRIC" (as
        many, with their middles on every `stride`-th element).
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or a window does not fit in.
      DtypeError: x is not floating.

    Examples:
      >>> value(mtf.avg_pool(mtf.constant(mesh, [1.0, 5.0, 2.0, 4.0], "n:4"), {"n": 2}))
      array([3., 3.], dtype=float32)
    """
    if not check_tensor(x).dtype.is_floating:
        raise DtypeError(f"the mean of {x.dtype.name} is not a {x.dtype.name}; convert with mtf.cast")
    # Sums of 16-bit floats would lose bits in every window.
    y = cast(x, sum_dtype(x.dtype))
    for windows in _slides(x, ksize, strides, padding):
        y = WindowSumOperation(y, None, windows, name=name or "avg_pool").outputs[0]
        is_full = not windows.before and not windows.after
        y = divide(y, windows.kernel_size if is_full else _sizes(y, windows), output_shape=y.shape)
    return cast(y, x.dtype)


def _sizes(x: Tensor, windows: Slide) -> Tensor:
    """The number of elements inside, for each window.

    A mean divides by this number, because multiplying by a rounded reciprocal would be inexact.
    """
    places = range_along(x.mesh, x.shape.get_dim_by_name(windows.image_dim), tf.int32)
    first = places * windows.stride - windows.before
    inside = minimum(first + windows.kernel_size, windows.image_size) - maximum(first, 0)
    return cast(inside, x.dtype)


def _slides(x: Tensor, ksize: Mapping[str, int], strides: Steps, padding: str) -> list[Slide]:
    if not isinstance(ksize, Mapping) or not ksize:
        raise ShapeError(f'ksize must give sizes by dimension, as {{"height": 2, "width": 2}}, and is {ksize!r}')
    check_padding(padding)
    names = [x.shape[x.shape.axis(d)].name for d in ksize]
    sizes = numbers_by_name(dict(zip(names, ksize.values(), strict=True)), names, "ksize")
    steps = sizes if strides is None else numbers_by_name(strides, names, "strides")
    if not x.size:
        raise ShapeError(f"[{x.shape}] has no elements to pool")
    return [
        slide(name, name, (x.shape.get_dim_by_name(name).size, sizes[name]), padding, stride=steps[name])
        for name in names
    ]
