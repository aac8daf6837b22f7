"""Converts values to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def host_array(value: Any) -> np.ndarray:
    """The NumPy array of a concrete value: an array, a number, a list, or an eager tensor.

    The array of a tensor on the host shares the tensor's memory, so do not write to it. A scalar tensor is handled
    apart, because NumPy cannot convert a bfloat16 scalar: its `__array__` returns a number.
    """
    is_scalar = isinstance(value, tf.Tensor) and hasattr(value, "numpy") and not value.shape.rank
    return np.asarray(value.numpy() if is_scalar else value)  # numpy() of a larger tensor copies it
