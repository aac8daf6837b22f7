"""Complex numbers: their parts, and functions of them.

Gradients are TensorFlow's. For a real loss L, the gradient of a complex z = x + iy is dL/dx + i dL/dy. So z + 0.1 *
gradient is the direction in which L grows fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import DtypeError
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra import wrapping_integers
from meshtf.ops.algebra.arithmetic import divide, negative
from meshtf.ops.algebra.broadcasting import broadcast_shape
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, conjugate
from meshtf.ops.algebra.slopes import over_divisor, times_slope
from meshtf.ops.elementwise.comparisons import equal, less
from meshtf.ops.elementwise.math_functions import sign
from meshtf.ops.elementwise.non_finite_numbers import is_nan
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import constant, zeros_like
from meshtf.planning.local_work.work_facts import Kernel

_PARTS = {tf.complex64: tf.float32, tf.complex128: tf.float64}
_WHOLE = {part: whole for whole, part in _PARTS.items()}


@language_function
def complex(real: Tensor, imag: Tensor, output_shape: ShapeLike | None = None, name: str = "complex") -> Tensor:
    """real + i imag, broadcast by name: complex64 from float32, complex128 from float64.

    Args:
      real: the real part.
      imag: the imaginary part, of the same dtype.
      output_shape: the order of the result's dimensions.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: they are not both float32, or both float64.

    Examples:
      >>> mtf.complex(x, mtf.zeros(mesh, "hidden:8"))
      complex [batch:4 hidden:8] complex64
    """
    dtype = same_dtype([check_tensor(real), check_tensor(imag)])
    if dtype not in _WHOLE:
        raise DtypeError(f"there are no complex numbers of {dtype.name}; convert to tf.float32 or tf.float64")
    # Broadcasting here gives both gradients the same shape.
    shape = broadcast_shape([real.shape, imag.shape], output_shape)
    return ElementwiseOperation(
        name,
        tf.complex,
        [real, imag],
        output_shape=shape,
        output_dtype=_WHOLE[dtype],
        gradient=lambda op, dy: (_real(dy), _imag(dy)),
        is_linear=True,
    ).outputs[0]


@language_function
def real(x: Tensor, name: str = "real") -> Tensor:
    """The real part. A real tensor is returned as it is.

    Examples:
      >>> value(mtf.real(mtf.constant(mesh, [1.0 + 2.0j], "n:1", tf.complex64)))
      array([1.], dtype=float32)
    """
    return _real(x, name) if check_tensor(x).dtype.is_complex else x


@language_function
def imag(x: Tensor, name: str = "imag") -> Tensor:
    """The imaginary part, which is zero for a real tensor.

    Examples:
      >>> value(mtf.imag(mtf.constant(mesh, [1.0 + 2.0j], "n:1", tf.complex64)))
      array([2.], dtype=float32)
    """
    return _imag(x, name) if check_tensor(x).dtype.is_complex else zeros_like(x)


@language_function
def conj(x: Tensor) -> Tensor:
    """The complex conjugate. A real tensor is returned as it is.

    Examples:
      >>> value(mtf.conj(mtf.constant(mesh, [1.0 + 2.0j], "n:1", tf.complex64)))
      array([1.-2.j], dtype=complex64)
    """
    return conjugate(check_tensor(x))


@language_function
def abs(x: Tensor, name: str = "abs") -> Tensor:
    """The absolute value: real for complex numbers, else of the same dtype. Its gradient at 0 is 0.

    Examples:
      >>> value(mtf.abs(mtf.constant(mesh, [3.0 + 4.0j], "n:1", tf.complex64)))
      array([5.], dtype=float32)
      >>> value(abs(mtf.constant(mesh, [-2, 2], "n:2", tf.int32)))
      array([2, 2], dtype=int32)
    """
    if check_tensor(x).dtype == tf.bool:
        raise DtypeError("a number is needed, not bool; convert with mtf.cast")
    if not x.dtype.is_complex:
        kernel = tf.identity if x.dtype.is_unsigned else wrapping_integers.absolute if x.dtype.is_integer else tf.abs
        return ElementwiseOperation(
            name, kernel, [x], gradient=lambda op, dy: (times_slope(dy, sign(op.inputs[0])),)
        ).outputs[0]

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor]:
        is_zero = equal(op.outputs[0], 0)
        scale = where(is_zero, 0, divide(dy, where(is_zero, 1, op.outputs[0])))
        return [times_slope(_as_complex(scale), op.inputs[0])]

    return ElementwiseOperation(name, tf.abs, [x], output_dtype=_PARTS[x.dtype], gradient=gradient).outputs[0]


@language_function
def angle(x: Tensor, name: str = "angle") -> Tensor:
    """The angle in the complex plane, from -pi to pi. For a real tensor it is 0, pi where x is negative, or NaN.

    Raises:
      DtypeError: x is neither floating nor complex.

    Examples:
      >>> value(mtf.angle(mtf.constant(mesh, [1.0, -1.0], "n:2"))).round(3)
      array([0.   , 3.142], dtype=float32)
    """
    dtype = check_tensor(x).dtype
    if dtype.is_floating:
        side = where(less(x, 0), constant(x.mesh, math.pi, dtype=dtype), constant(x.mesh, 0, dtype=dtype))
        return where(is_nan(x), x, side)
    if not dtype.is_complex:
        raise DtypeError(f"a floating or complex tensor is needed, not {dtype.name}; convert with mtf.cast")

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor]:
        (z,) = op.inputs
        turned = complex(_imag(z), _real(z))
        return [negative(over_divisor(_as_complex(dy), turned))]

    return ElementwiseOperation(name, tf.math.angle, [x], output_dtype=_PARTS[dtype], gradient=gradient).outputs[0]


def _part(name: str, kernel: Kernel, back: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = name) -> Tensor:
        return ElementwiseOperation(
            name, kernel, [x], output_dtype=_PARTS[x.dtype], gradient=lambda op, dy: (back(dy),), is_linear=True
        ).outputs[0]

    return function


def _as_complex(x: Tensor) -> Tensor:
    return complex(x, constant(x.mesh, 0, dtype=x.dtype), output_shape=x.shape)


def _as_imaginary(x: Tensor) -> Tensor:
    return complex(constant(x.mesh, 0, dtype=x.dtype), x, output_shape=x.shape)


_real = _part("real", tf.math.real, _as_complex)
_imag = _part("imag", tf.math.imag, _as_imaginary)
