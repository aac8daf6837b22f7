"""A part of a local array whose sizes are known while the program is planned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def sliced(x: tf.Tensor, begin: tf.Tensor | Sequence[int], sizes: Sequence[int]) -> tf.Tensor:
    """The part of x with these sizes that starts at `begin`.

    TensorFlow converts an array in a third of the time that a list of integers takes.
    """
    start = begin if isinstance(begin, tf.Tensor) else np.array(begin, np.int32)
    return tf.slice(x, start, np.array(sizes, np.int32))
