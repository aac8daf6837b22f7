"""Activations whose gradients have kernels of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf


def test_relu_of_what_is_averaged(agrees: Callable[..., None]) -> None:
    """The gradient of the mean is one number for a whole row, which the kernel would not spread by itself."""
    x = np.random.default_rng(0).normal(size=(4, 4))

    def averaged(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_mean(mtf.relu(x), reduced_dim="b")

    agrees(averaged, lambda x: tf.reduce_mean(tf.nn.relu(x), axis=1), {"x": ("a:4 b:4", x)})
