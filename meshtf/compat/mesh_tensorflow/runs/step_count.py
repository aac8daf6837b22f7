"""The number of the step that optimizers read.

It is TensorFlow's global step. A program raises it in the same run in which it updates, and a session may do this
before or after the update. A plain read would sometimes give this step and sometimes the next one.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


class StepCount:
    """Follows the global step, and keeps during a run the value from the run's beginning.

    Attributes:
      node: the number as a float32 tensor of TensorFlow's graph, or None until something asks for it.
    """

    def __init__(self) -> None:
        self._present: int | None = None
        self.node: tf.Tensor | None = None

    def asked(self) -> tf.Tensor:
        """The node. Makes it if it does not exist yet."""
        if self.node is None:
            found = tf.numpy_function(self._of_run, [_global_step()], tf.float32, name="step")
            self.node = tf.ensure_shape(found, [])
        return self.node

    def settled(self) -> tf.Tensor:
        """A node that stores the present global step. It must not run together with an update."""
        return tf.numpy_function(self._settle, [_global_step()], tf.int64)

    def advance(self) -> None:
        """Counts a run that has updated."""
        if self._present is not None:
            self._present += 1

    def _settle(self, found: np.int64) -> np.int64:
        self._present = int(found)
        return found

    def _of_run(self, found: np.int64) -> np.float32:
        """The step of the run.

        If the program has raised the global step already, it is one more than the step. If it differs in another way, a
        checkpoint was restored.
        """
        if self._present is None or int(found) - self._present not in (0, 1):
            self._present = int(found)
        return np.float32(self._present)


def _global_step() -> tf.Tensor:
    return tf.cast(tf.compat.v1.train.get_or_create_global_step().read_value(), tf.int64)
