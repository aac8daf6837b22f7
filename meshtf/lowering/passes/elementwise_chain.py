"""A chain of elementwise kernels, compiled into one function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.lowering.passes.update_in_blocks import Step


class ElementwiseChain:
    """A function of slices, which XLA compiles once for each shape of slices and each device.

    steps: the kernels and their operands. results: numbers of the values to return, where inputs are counted first.
    """

    def __init__(self, steps: Sequence[Step], results: Sequence[int]) -> None:
        self.steps = steps
        self.results = results
        self._compiled = tf.function(self.values, jit_compile=True, autograph=False)

    def values(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        """Returns the results inside a function that is being traced."""
        values = list(slices)
        for kernel, operands in self.steps:
            values.append(kernel(*(values[n] for n in operands)))
        return [values[n] for n in self.results]

    def __call__(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        """Returns the results, from the compiled function."""
        return self._compiled(*slices)

    def flat(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        """Returns the same results from one function per number of elements: slices of different shapes share it."""
        shape = next((x.shape for x in slices if x.shape.rank), tf.TensorShape([]))
        if shape.rank < 2:
            return self(*slices)
        size = [math.prod(shape)]
        results = self(*(tf.reshape(x, size) if x.shape.rank else x for x in slices))
        return [tf.reshape(y, shape) for y in results]
