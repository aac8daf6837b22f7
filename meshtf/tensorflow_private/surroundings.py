"""Where a program is called: while a gradient tape records, or inside a function that XLA compiles.

Public ways that do not do:

- `TFE_Py_TapeSetIsEmpty`: a `tf.GradientTape` does not tell whether one around it records.
- `GraphOrParentsInXlaContext`: `tf.inside_function` tells that something is traced, not that XLA compiles it.
"""

from __future__ import annotations

from typing import Any, cast

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.ops import control_flow_util


def is_tape_recording() -> bool:
    """Whether a `tf.GradientTape`, or a `tf.autodiff.ForwardAccumulator`, records what is done in this thread."""
    return not cast("Any", pywrap_tfe).TFE_Py_TapeSetIsEmpty()


def is_inside_xla() -> bool:
    """Whether a function is being traced that XLA compiles as a whole, or one inside of such a function."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
