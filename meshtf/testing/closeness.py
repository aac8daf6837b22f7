"""Compares arrays, up to rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.dimension import ShapeLike, convert_to_shape
from meshtf.host_array import host_array
from meshtf.testing.rounding import rounding_bound, unit_roundoff


def assert_close(
    actual: Any,
    expected: Any,
    *,
    terms: int | Sequence[int],
    magnitude: Any = None,
    dtype: Any = None,
    steps: Any = 0,
    shape: ShapeLike | None = None,
    what: str = "",
) -> None:
    """Fails unless `actual` equals `expected` up to the rounding errors of `terms` terms; see `rounding_bound`.

    Integers and truth values must be equal. Infinities and NaNs must be at the same places. For example, a tensor
    [batch, classes] is the result of an einsum over `hidden:64` and a softmax over `classes:10`:

        assert_close(split, whole, terms=(64, FUNCTION_TERMS, 10), shape=[batch, classes], what="logits")

    Args:
      actual: an array or a tensor.
      expected: an array of the same shape, perhaps of higher precision; or one number for all elements.
      terms: the number of roundings that lead to each value, or a list with the roundings of each successive stage.
      magnitude: the size of the values, a number or an array. The default is the largest finite expected value. Pass
        `np.abs(expected)` for elementwise functions, whose errors are relative to each value.
      dtype: the least precise dtype in the computation. The default is the less precise dtype of the two arrays.
        Required if both are Python numbers.
      steps: how many training steps led to each value.
      shape: names the dimensions in the message.
      what: names the arrays in the message.

    Raises:
      AssertionError: if an element has a larger error. The message gives the place of the largest error, the value
        there, the expected value, the allowed error, and how many elements fail.
      ValueError: if the bound is too wide to detect a mistake, or if the dtype is unknown.
    """
    x, wanted = host_array(actual), host_array(expected)
    if dtype is None and all(map(_has_no_dtype, (actual, expected))):
        raise ValueError("assert_close: Python's numbers do not tell in which dtype they were computed; give dtype=")
    wanted = np.broadcast_to(wanted, x.shape) if not wanted.ndim else wanted
    label = f"{what}: " if what else ""
    assert x.shape == wanted.shape, f"{label}shape {list(x.shape)}, expected {list(wanted.shape)}"
    dtype = tf.as_dtype(max((x.dtype, wanted.dtype), key=unit_roundoff) if dtype is None else dtype)
    is_rounded = bool(unit_roundoff(x.dtype) or unit_roundoff(wanted.dtype))
    x, wanted = _wide(x), _wide(wanted)
    magnitude = largest(wanted) if magnitude is None else magnitude
    allowed = np.broadcast_to(rounding_bound(dtype, terms, magnitude, steps=steps) if is_rounded else 0.0, x.shape)
    error = _error(x, wanted)
    is_wrong = (error > 0) & (np.isinf(error) | ~(error <= allowed))  # also if the magnitude is NaN or infinite
    if is_wrong.any():
        worst = np.unravel_index(np.argmax(np.where(is_wrong, error, -1.0)), x.shape)
        where = _place(tuple(map(int, worst)), shape)
        raise AssertionError(
            f"{label}{is_wrong.sum()} of {x.size} elements ({is_wrong.mean():.2%}) are further off than rounding goes\n"
            f"  the largest error is {error[worst]:.3g}{where}: {x[worst]}, expected {wanted[worst]}\n"
            f"  allowed is {allowed[worst]:.3g}: {np.sum(terms)} terms in {dtype.name}, {_behind(steps)}values of "
            f"{np.max(magnitude):.3g}"
        )


def largest(*arrays: Any) -> float:
    """The largest finite absolute value in arrays of floating or complex numbers, or 0 if there is none."""
    wide = [np.abs(_wide(a)) for a in map(np.asarray, arrays) if unit_roundoff(a.dtype)]
    return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in wide), default=0.0)


def _has_no_dtype(x: Any) -> bool:
    """Tells whether x is a Python number, or a list of Python numbers."""
    while isinstance(x, list | tuple) and x:
        x = x[0]
    return type(x) is float


def _error(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the distances of the elements of two arrays.

    A distance is 0 if both elements are NaN or the same infinity, and infinite if only one is.
    """
    with np.errstate(invalid="ignore"):
        error = np.where((x == wanted) | ((x != x) & (wanted != wanted)), 0.0, np.abs(x - wanted))
    return np.where(np.isnan(error), np.inf, error)


def _wide(x: np.ndarray) -> np.ndarray:
    """Converts the array to a dtype in which differences are precise enough."""
    if not unit_roundoff(x.dtype):
        return x.astype(np.int64) if x.dtype.itemsize < 8 else x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _place(index: tuple[int, ...], shape: ShapeLike | None) -> str:
    if not index:
        return ""
    if shape is None:
        return f" at {list(index)}"
    return " at " + ", ".join(f"{d.name} {i}" for d, i in zip(convert_to_shape(shape), index, strict=True))


def _behind(steps: Any) -> str:
    return f"up to {np.max(steps)} steps, " if np.max(steps) else ""
