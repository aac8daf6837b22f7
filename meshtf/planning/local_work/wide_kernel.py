"""Kernels that are computed in float32 for narrower dtypes."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.planning.local_work.work_facts import Kernel


@dataclasses.dataclass(frozen=True, slots=True)
class WideKernel:
    """A function of floating tensors, computed in float32 for float16 and bfloat16, and rounded once.

    TensorFlow has no kernels for these dtypes for some functions. A function of several steps would round after each.
    """

    function: Kernel

    def __call__(self, *xs: tf.Tensor) -> tf.Tensor:
        dtype = xs[0].dtype
        if dtype.size >= 4:
            return self.function(*xs)
        return tf.cast(self.function(*(tf.cast(x, tf.float32) for x in xs)), dtype)
