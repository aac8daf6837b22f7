"""What a shift does, in TensorFlow, of a whole tensor."""

from __future__ import annotations

import tensorflow as tf


def moved(x: tf.Tensor, offset: int, axis: int, wrap: bool) -> tf.Tensor:
    """y[i] = x[i - offset]."""
    if wrap:
        return tf.roll(x, offset, axis)
    n = x.shape[axis]
    kept = max(0, n - abs(offset))
    begin, size, paddings = [0] * len(x.shape), x.shape.as_list(), [[0, 0] for _ in x.shape]
    begin[axis], size[axis] = max(0, -offset) if kept else 0, kept
    paddings[axis] = [n - kept, 0] if offset > 0 else [0, n - kept]
    return tf.pad(tf.slice(x, begin, size), paddings)
