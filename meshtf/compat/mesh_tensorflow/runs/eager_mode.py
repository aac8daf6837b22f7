"""Eager execution, and shapes of integers, where a program has disabled them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from meshtf.tensorflow_private import eager_context


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """What TensorFlow makes inside has a value at once, also under `tf.disable_v2_behavior()`.

    That makes the sizes in a `tf.TensorShape` objects, too, which neither hash nor are numbers for NumPy.
    """
    are_sizes_integers = isinstance(tf.TensorShape([1])[0], int)
    tf.compat.v1.enable_v2_tensorshape()
    try:
        with eager_context.eager_mode():
            yield
    finally:
        if not are_sizes_integers:
            tf.compat.v1.disable_v2_tensorshape()
