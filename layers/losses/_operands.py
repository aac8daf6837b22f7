"""Checks of the operands of losses, and the dtype in which losses compute."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.layers._operands import checked_operand


def widened(x: mtf.Tensor) -> mtf.Tensor:
    """x in float32, or in float64 if that is its dtype."""
    return x if x.dtype == tf.float64 else mtf.cast(x, tf.float32)


def wide_operand(x: object, what: str) -> mtf.Tensor:
    """A floating operand, widened.

    Raises:
      GraphError: it is no tensor.
      DtypeError: it is not floating.
    """
    tensor = checked_operand(x, what)
    if not tensor.dtype.is_floating:
        raise DtypeError(f"{what} must be floating, not {tensor.dtype.name}; convert with mtf.cast")
    return widened(tensor)


def wide_pair(first: object, second: object, names: tuple[str, str]) -> tuple[mtf.Tensor, mtf.Tensor]:
    """Two floating operands of the same dimensions, in one wide dtype.

    Raises:
      GraphError: one is no tensor.
      DtypeError: one is not floating.
      ShapeError: the dimensions differ.
    """
    x, y = wide_operand(first, names[0]), wide_operand(second, names[1])
    if set(x.shape) != set(y.shape):
        raise ShapeError(f"{names[1]} need the dimensions of {names[0]}, [{x.shape}], not [{y.shape}]")
    return x, mtf.cast(y, x.dtype)
