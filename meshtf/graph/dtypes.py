"""Element types: conversion to them, which have gradients, and the type in which to sum."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from meshtf.errors import DtypeError, nearest


def dtype_of(x: Any) -> tf.DType:
    """Converts to a dtype like `tf.as_dtype`. If `x` is not a dtype, raises DtypeError with the nearest name."""
    try:
        if isinstance(x, int):  # TensorFlow takes it for the number of a type
            raise TypeError
        dtype = tf.as_dtype(x)
    except TypeError:
        names = ("bool", "int32", "int64", "uint8", "bfloat16", "float16", "float32", "float64", "complex64")
        raise DtypeError(f"not a dtype: {x!r}{nearest(str(x), names) or '; give one such as tf.float32'}") from None
    if not (dtype.is_integer or dtype.is_floating or dtype.is_complex or dtype.is_bool):
        raise DtypeError(f"tensors are of numbers or of bool, not of {dtype.name}")
    return dtype


def is_differentiable(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_complex


def sum_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype in which to sum many elements of a dtype: float32 for narrower floats, else the dtype itself."""
    return tf.float32 if dtype in (tf.bfloat16, tf.float16) else dtype
