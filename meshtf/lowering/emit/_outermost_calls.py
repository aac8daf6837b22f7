"""Calls of traced functions from where the user is: outside of any trace, or inside one of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.tensorflow_private.function_calls import call_eagerly


class OutermostFunction:
    """A traced function of tensors, called with tensors as they are.

    Outside of any trace as if it were called, but that arguments are not bound to its signature, no tape is asked
    whether it records, and TensorFlow does not stand ready to look errors up in its graph, which would take a tenth of
    a millisecond for some dozens of variables.

    Args:
      function: traced, with tensors alone as arguments and results.
    """

    def __init__(self, function: tf.types.experimental.ConcreteFunction) -> None:
        self.function = function
        self._captured = list(function.captured_inputs)
        self._name = cast("Any", function).name
        self._num_results = len(cast("Any", function).outputs)

    def __call__(self, arguments: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Its results, for arguments of its shapes and dtypes, while no tape records."""
        if not tf.executing_eagerly():
            return cast("Any", self.function)(*arguments)
        return call_eagerly(self._name, [*arguments, *self._captured], self._num_results)
