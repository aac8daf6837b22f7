"""`TensorSpec`: what is known of an input before a program runs."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike, shape_of
from meshtf.graph.dtypes import dtype_of


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class TensorSpec:
    """The named shape and the dtype of an input.

    Examples:
      >>> mtf.TensorSpec("batch:4 length:16", tf.int32).shape
      Shape[batch:4 length:16]
    """

    shape: Shape
    dtype: tf.DType

    @says_where
    def __init__(self, shape: ShapeLike, dtype: tf.DType = tf.float32) -> None:
        object.__setattr__(self, "shape", shape_of(shape))
        object.__setattr__(self, "dtype", dtype_of(dtype))
