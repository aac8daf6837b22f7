"""Scalars that are known while the graph is built, as operands beside tensors."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.tensor import Tensor

Scalar: TypeAlias = "int | float | bool | complex | np.generic"
Operand: TypeAlias = "Tensor | Scalar"


def is_scalar(x: object) -> bool:
    """Whether x is a Python or NumPy number, or a 0-d array: a value known while the graph is built."""
    return isinstance(x, numbers.Number | np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0)


def scalar_constant(value: Any, dtype: tf.DType) -> np.ndarray:
    """The scalar in a dtype.

    Raises:
      DtypeError: the dtype cannot hold it (1.5 or 2**40 in int32).
    """
    array = np.asarray(value)
    if array.dtype == object and isinstance(value, numbers.Real):  # a fraction, or an integer of more than 64 bits
        array = np.asarray(_float(value))
    if array.dtype.kind not in "biufcV":  # V: bfloat16
        raise DtypeError(f"a number is needed, not {value!r}")
    return held_by(array, dtype)


def _float(value: numbers.Real) -> float:
    """The nearest float; infinite if there is none."""
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def held_by(array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Numbers in a dtype. Integers may lose digits in a floating dtype, as in TensorFlow.

    Raises:
      DtypeError: the dtype cannot hold one (1.5 or 2**40 in int32). The message shows the first such number.
    """
    lost, new = np.zeros(array.shape, bool), np.dtype(dtype.as_numpy_dtype)
    if np.iscomplexobj(array) and not dtype.is_complex:
        lost = np.ones(array.shape, bool)
    elif new.kind in "iu" and array.dtype != bool:
        limits = np.iinfo(new)  # tf.DType.min takes a Ctrl-C in it for a dtype without limits
        with np.errstate(invalid="ignore"):
            lost = np.logical_not((array >= limits.min) & (array <= limits.max) & (array == np.floor(array)))
    if lost.any():
        if not array.ndim:
            raise DtypeError(f"scalar {array} is no {dtype.name}; convert the tensor with mtf.cast")
        raise DtypeError(f"{array[lost][0]}, in the array, is no {dtype.name}; convert the array, as in NumPy's astype")
    return array.astype(new)


def check_number(dtype: tf.DType) -> None:
    """Checks that a dtype is not bool: truth values neither add nor multiply.

    Raises:
      DtypeError: it is bool.
    """
    if dtype == tf.bool:
        raise DtypeError("a number is needed, not bool; convert with mtf.cast, or use mtf.logical_and, logical_or")


def whole_number(x: object, what: str) -> int:
    """A Python or NumPy integer.

    Raises:
      ShapeError: x is anything else; the message calls it `what`.
    """
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{what} must be a whole number known now, not {x!r}") from None
