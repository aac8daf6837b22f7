"""Eager execution and integer sizes of shapes, in programs that have disabled them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from meshtf.tensorflow_private import eager_context


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Executes TensorFlow eagerly inside, even after `tf.disable_v2_behavior()`.

    That call also turns the sizes in a `tf.TensorShape` into objects. They have no hash, and NumPy does not accept them
    as numbers. So this context turns them back into integers.
    """
    are_sizes_integers = isinstance(tf.TensorShape([1])[0], int)
    tf.compat.v1.enable_v2_tensorshape()
    try:
        with eager_context.eager_mode():
            yield
    finally:
        if not are_sizes_integers:
            tf.compat.v1.disable_v2_tensorshape()
