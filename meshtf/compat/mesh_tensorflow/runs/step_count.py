"""The number of the step that an optimizer is told.

It is TensorFlow's global step, which a program raises in the same run in which it updates; when in the run, a session
does not say. Read as it is, it would be of this step or of the next one, now so and now so.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


class StepCount:
    """Follows the global step, and stays within a run what it was at its beginning.

    Attributes:
      node: the number, float32, in the graph of TensorFlow's; None where nothing has asked for it.
    """

    def __init__(self) -> None:
        self._present: int | None = None
        self.node: tf.Tensor | None = None

    def asked(self) -> tf.Tensor:
        """The node, made where it is not there yet."""
        if self.node is None:
            found = tf.numpy_function(self._of_run, [_global_step()], tf.float32, name="step")
            self.node = tf.ensure_shape(found, [])
        return self.node

    def settled(self) -> tf.Tensor:
        """A node to be run beside no update: takes the global step as it is."""
        return tf.numpy_function(self._settle, [_global_step()], tf.int64)

    def advance(self) -> None:
        """A run has updated."""
        if self._present is not None:
            self._present += 1

    def _settle(self, found: np.int64) -> np.int64:
        self._present = int(found)
        return found

    def _of_run(self, found: np.int64) -> np.float32:
        """Where the program has raised it already, it is one more than it was; where it is another, it was restored."""
        if self._present is None or int(found) - self._present not in (0, 1):
            self._present = int(found)
        return np.float32(self._present)


def _global_step() -> tf.Tensor:
    return tf.cast(tf.compat.v1.train.get_or_create_global_step().read_value(), tf.int64)
