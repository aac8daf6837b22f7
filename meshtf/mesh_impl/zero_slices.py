"""Slices of a variable on the devices of a mesh that are in this process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device


def zero_slices(
    devices: Sequence[str], name: str, slice_shape: Sequence[int], dtype: tf.DType
) -> dict[int, tf.Variable]:
    """By core, of the cores in this process: a slice where the core is at home, zero."""
    slices = {}
    # A program may first run inside a user's tf.function, which must not own the variables.
    with tf.init_scope():
        for core in local_cores(devices):
            with tf.device(home_device(devices[core])):
                slices[core] = _zeros(name.replace("/", "_"), slice_shape, dtype)
    return slices


def _zeros(name: str, size: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """A variable that no GradientTape of the user's watches, which could not see into the program, and for which no
    tf.function of the user's is traced again."""
    value = tf.zeros(size, dtype)
    return tf.Variable(value, trainable=False, name=name, experimental_enable_variable_lifting=False)
