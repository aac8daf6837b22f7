"""Slices of variables, which a backend's programs read and assign, and which the host may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import tensorflow as tf


class Slice(Protocol):
    """A core's part of a variable, where the core's work finds it. A tf.Variable on the core's device is one."""

    @property
    def dtype(self) -> tf.DType: ...

    @property
    def shape(self) -> tf.TensorShape: ...

    def numpy(self) -> np.ndarray:
        """A copy on the host, that no later step changes."""
        ...

    def assign(self, value: Any) -> Any:
        """Gives it a value, an array or tensor of its own shape and dtype."""
        ...


Slices: TypeAlias = Mapping[int, Slice]
"""The slices of a variable, by core, for the cores in this process."""


def on_host(held: Slice) -> np.ndarray:
    """A slice's value, to be read before the next step; without a copy, where it is in the host's memory already."""
    if isinstance(held, tf.Variable):
        # A third of the time of `held.read_value()`.
        value = tf.raw_ops.ReadVariableOp(resource=cast("Any", held).handle, dtype=held.dtype)
        return np.asarray(value if value.shape.rank else value.numpy())
    return np.asarray(held)


def to_assign(held: Slice, value: np.ndarray) -> np.ndarray | tf.Tensor:
    """A value in the form in which several slices, alike to this one, are best given it: virtual CPUs share the memory
    of a tensor until one of them writes there."""
    if not isinstance(held, tf.Variable):
        return value
    with tf.device(cast("Any", held).device):
        return tf.constant(value)


def is_finite(held: Slice) -> bool:
    """Whether a slice of floating-point numbers holds neither a NaN nor an infinity."""
    if isinstance(held, tf.Variable):
        with tf.device(cast("Any", held).device):
            return bool(tf.reduce_all(tf.math.is_finite(held)))
    return bool(np.isfinite(np.asarray(held)).all())
