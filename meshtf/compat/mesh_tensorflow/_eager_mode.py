"""Eager execution where a program has disabled it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tensorflow.python.eager import context  # no public name runs eagerly where eager execution is disabled


def eager_mode() -> AbstractContextManager[None]:
    """What TensorFlow makes inside has a value at once, also under `tf.disable_v2_behavior()`."""
    return context.eager_mode()
