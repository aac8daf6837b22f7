"""Numbers beside tensors: scalars that are known while the graph is built."""

from __future__ import annotations

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
    """A Python or NumPy number, or a 0-d array: a value that is known while the graph is built."""
    return isinstance(x, numbers.Number | np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0)


def scalar_constant(value: Any, dtype: tf.DType) -> np.ndarray:
    """The scalar in an element type. DtypeError where the type cannot hold it (1.5 or 2**40 for an int32)."""
    array = np.asarray(value)
    if array.dtype.kind not in "biufcV":  # V: bfloat16
        raise DtypeError(f"a number is needed, not {value!r}")
    return held_by(array, dtype)


def held_by(array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Numbers in an element type. DtypeError, with the first that the type cannot hold: 1.5 or 2**40 for an int32.

    Whole numbers may lose digits in a floating type, as they do in TensorFlow.
    """
    lost = np.zeros(array.shape, bool)
    if np.iscomplexobj(array) and not dtype.is_complex:
        lost = np.ones(array.shape, bool)
    elif dtype.is_integer:
        with np.errstate(invalid="ignore"):
            lost = np.logical_not((array >= dtype.min) & (array <= dtype.max) & (array == np.floor(array)))
    if lost.any():
        if not array.ndim:
            raise DtypeError(f"scalar {array} is no {dtype.name}; convert the tensor with mtf.cast")
        raise DtypeError(f"{array[lost][0]}, in the array, is no {dtype.name}; convert the array, as in NumPy's astype")
    return array.astype(dtype.as_numpy_dtype)


def check_number(dtype: tf.DType) -> None:
    """DtypeError for bool: truth values neither add nor multiply."""
    if dtype == tf.bool:
        raise DtypeError("a number is needed, not bool; convert with mtf.cast, or use mtf.logical_and, logical_or")


def whole_number(x: object, what: str) -> int:
    """A Python or NumPy whole number. ShapeError, which names `what` it is, for anything else."""
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{what} must be a whole number known now, not {x!r}") from None
