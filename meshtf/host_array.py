"""Values as arrays of NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def host_array(value: Any) -> np.ndarray:
    """The array of a value that is there: an array, a number, a list, or a tensor that eager execution made.

    NumPy itself makes none of a scalar tensor of bfloat16, whose `__array__` gives a number.
    """
    is_there = isinstance(value, tf.Tensor) and hasattr(value, "numpy")
    return np.asarray(value.numpy() if is_there else value)
