"""Conversion to another element type."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.casting import converted


@language_function
def cast(x: Tensor, dtype: tf.DType, name: str = "cast") -> Tensor:
    """x in another dtype. Gradients are cast back.

    A floating number that becomes an integer loses its fraction. A number beyond the new dtype becomes the nearest one
    that it has, and NaN becomes 0. An integer in a narrower integer dtype keeps its lowest bits. A complex number loses
    its imaginary part, except that in bool, as in NumPy, every number other than 0 is True.

    Examples:
      >>> mtf.cast(x, tf.bfloat16)
      cast [batch:4 hidden:8] bfloat16
      >>> value(mtf.cast(mtf.constant(mesh, [1.7, -1.7], "n:2"), tf.int32))
      array([ 1, -1], dtype=int32)
      >>> value(mtf.cast(mtf.constant(mesh, [300.0, -1.0, np.nan], "n:3"), tf.uint8))
      array([255,   0,   0], dtype=uint8)
    """
    return converted(check_tensor(x), dtype_of(dtype), name)


@language_function
def to_float(x: Tensor, name: str = "to_float") -> Tensor:
    """x as float32.

    Examples:
      >>> mtf.to_float(mtf.range(mesh, ("n", 3)))
      to_float [n:3] float32
    """
    return cast(x, tf.float32, name)


@language_function
def to_bfloat16(x: Tensor, name: str = "to_bfloat16") -> Tensor:
    """x as bfloat16.

    Examples:
      >>> mtf.to_bfloat16(x)
      to_bfloat16 [batch:4 hidden:8] bfloat16
    """
    return cast(x, tf.bfloat16, name)


@language_function
def to_int32(x: Tensor, name: str = "to_int32") -> Tensor:
    """x as int32.

    Examples:
      >>> mtf.to_int32(x > 0.0)
      to_int32 [batch:4 hidden:8] int32
    """
    return cast(x, tf.int32, name)
