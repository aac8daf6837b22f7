"""Statistics in float32, scales and biases: the parts that normalizations share.

Variances are means of (x - mean)^2, however large the mean is. The shortcut mean(x^2) - mean(x)^2 would lose all digits
for values near 10,000 with a deviation of 1: float32 has 7 digits, and 10^8 needs 8 before the point.
"""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError
from meshtf.layers._operands import Dims
from meshtf.layers.initializers import Initializer
from meshtf.number_checks import is_number


def check_epsilon(epsilon: object) -> None:
    """Checks that an epsilon is a finite number, 0 or more. The root of a variance below 0 would be a NaN.

    Raises:
      GraphError: it is not.
    """
    if not is_number(epsilon) or epsilon < 0:
        raise GraphError(f"epsilon must be a number, 0 or more, and is {epsilon!r}")


def centred(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
    """x minus its mean over the dimensions that `shape` lacks.

    The mean is rounded, so a second mean removes the rest.
    """
    near = x - mtf.reduce_mean(x, output_shape=shape)
    # The second mean is 0 except for rounding, whatever x is. So its gradient is 0.
    return near - mtf.stop_gradient(mtf.reduce_mean(near, output_shape=shape))


def dims_of(x: mtf.Tensor, dims: Dims) -> mtf.Shape:
    """The dimensions, each of which x must have. x must be floating."""
    if not x.dtype.is_floating:
        raise DtypeError(f"statistics need floating numbers, and x is {x.dtype.name}; convert it with mtf.cast")
    return x.shape.only(dims)


def widened(x: mtf.Tensor) -> mtf.Tensor:
    return x if x.dtype == tf.float64 else x.astype(tf.float32)


def parameter(like: mtf.Tensor, name: str, shape: mtf.Shape, initializer: Initializer) -> mtf.Tensor:
    return mtf.get_variable(like.mesh, name, shape, initializer=initializer).astype(like.dtype)


def filled(value: float) -> Initializer:
    return lambda mesh, shape, dtype: mtf.fill(mesh, value, shape, dtype)
