"""The dtype policy of variables."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.graph.dtypes import dtype_of


@dataclasses.dataclass(frozen=True, slots=True)
class VariableDType:
    """The dtypes of a variable: in checkpoints (master), on devices (slice), and as the program reads it (activation).

    `slice_dtype` and `activation_dtype` default to `master_dtype`.

    Examples:
      >>> bfloat16 = mtf.VariableDType(master_dtype=tf.float32, slice_dtype=tf.float32, activation_dtype=tf.bfloat16)
      >>> mtf.get_variable(mesh, "w", "hidden:8", bfloat16)
      w [hidden:8] bfloat16
    """

    master_dtype: tf.DType = tf.float32
    slice_dtype: tf.DType | None = None
    activation_dtype: tf.DType | None = None

    @says_where
    def __post_init__(self) -> None:
        object.__setattr__(self, "master_dtype", dtype_of(self.master_dtype))
        object.__setattr__(self, "slice_dtype", dtype_of(self.slice_dtype or self.master_dtype))
        object.__setattr__(self, "activation_dtype", dtype_of(self.activation_dtype or self.master_dtype))
