"""Makes the slices of a new variable on the devices of this process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device
from meshtf.tensorflow_private.variable_handles import eager_variable


def zero_slices(devices: Sequence[str], slice_shape: Sequence[int], dtype: tf.DType) -> dict[int, tf.Variable]:
    """A slice of zeros for each core in this process, on the device where the core computes.

    Cores with the same device share the memory of the zeros until they write to their slices.
    """
    slices: dict[int, tf.Variable] = {}
    zeros: dict[str, tf.Tensor] = {}
    # A program may first run inside a user's tf.function, which must not own the variables.
    with tf.init_scope():
        for core in local_cores(devices):
            home = home_device(devices[core])
            with tf.device(home):
                value = zeros[home] = zeros[home] if home in zeros else tf.zeros(slice_shape, dtype)
                # No GradientTape of the user can see into a program. All variables have the same name, since TensorFlow
                # makes a kernel for each name.
                slices[core] = eager_variable(value, "slice")
    return slices
