"""Detects whether a program is called while a gradient tape records, or inside a function that XLA compiles.

Public alternatives that are not sufficient:

- `TFE_Py_TapeSetIsEmpty`: a `tf.GradientTape` does not tell whether an enclosing tape records.
- `GraphOrParentsInXlaContext`: `tf.inside_function` tells that a function is traced, not that XLA compiles it.
"""

from __future__ import annotations

from typing import Any, cast

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.ops import control_flow_util


def is_tape_recording() -> bool:
    """Whether a `tf.GradientTape` or a `tf.autodiff.ForwardAccumulator` records the operations of this thread."""
    return not cast("Any", pywrap_tfe).TFE_Py_TapeSetIsEmpty()


def is_inside_xla() -> bool:
    """Whether the function being traced, or one that encloses it, is compiled by XLA as a whole."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
