"""Slices of a variable on the devices of a mesh that are in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops as variables  # no public name makes a variable of a handle

from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device


def zero_slices(devices: Sequence[str], slice_shape: Sequence[int], dtype: tf.DType) -> dict[int, tf.Variable]:
    """By core, of the cores in this process: a slice where the core is at home, zero.

    Cores that share a device share the memory of the zeros until they write to their slices.
    """
    slices: dict[int, tf.Variable] = {}
    zeros: dict[str, tf.Tensor] = {}
    # A program may first run inside a user's tf.function, which must not own the variables.
    with tf.init_scope():
        for core in local_cores(devices):
            home = home_device(devices[core])
            with tf.device(home):
                value = zeros[home] = zeros[home] if home in zeros else tf.zeros(slice_shape, dtype)
                slices[core] = _variable(value)
    return slices


def _variable(value: tf.Tensor) -> tf.Variable:
    """One that no GradientTape of the user's watches, which could not see into the program, and for which no
    tf.function of the user's is traced again."""
    # All have one name, since TensorFlow makes a kernel for each name. `tf.Variable` takes two to six times as long.
    shape, dtype = value.shape, value.dtype
    handle = cast("Any", variables)._variable_handle_from_shape_and_dtype(shape, dtype, None, "slice", False, value)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return cast("Any", variables).BaseResourceVariable(
        trainable=False,
        shape=shape,
        dtype=dtype,
        handle=handle,
        handle_name="slice",
        unique_id=f"slice_{id(handle)}",
        initial_value=None,  # it would be kept
        in_graph_mode=False,
    )
