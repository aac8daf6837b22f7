"""Values as arrays of NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def host_array(value: Any) -> np.ndarray:
    """The array of a value that is there: an array, a number, a list, or a tensor that eager execution made.

    An array of a tensor on the host has the tensor's memory, so do not write to it. NumPy itself makes none of a scalar
    tensor of bfloat16, whose `__array__` gives a number.
    """
    is_scalar = isinstance(value, tf.Tensor) and hasattr(value, "numpy") and not value.shape.rank
    return np.asarray(value.numpy() if is_scalar else value)  # numpy() of a larger tensor copies it
