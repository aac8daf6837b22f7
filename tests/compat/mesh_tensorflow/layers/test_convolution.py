"""Convolutions and pooling of the original are TensorFlow's, under the names of its variables."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated, initial

DIMS = [mtf.Dimension(n, s) for n, s in (("batch", 4), ("rows", 8), ("columns", 8), ("channels", 3))]
OUT = mtf.Dimension("hidden", 6)
IMAGES = initial("images", [4, 8, 8, 3])


def _program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, IMAGES, DIMS)
    y = mtf.layers.conv2d(x, OUT, (3, 3), (2, 2), name="conv")
    with tf.compat.v1.variable_scope("conv", reuse=True):
        kernel = mtf.get_variable(mesh, "kernel", [("filter_h", 3), ("filter_w", 3), ("channels", 3), OUT])
    line = mtf.layers.conv1d(mtf.reduce_sum(x, reduced_dim=DIMS[1]), OUT, name="conv1d")
    separable = mtf.layers.separable_conv1d(mtf.reduce_sum(x, reduced_dim=DIMS[1]), OUT, -1, 0, name="separable")
    pooled = {"largest": mtf.layers.max_pool2d(x, (2, 2)), "mean": mtf.layers.avg_pool2d(x, (2, 4))}
    return {"y": y, "kernel": kernel, "line": line, "separable": separable, **pooled}


def test_images() -> None:
    found = evaluated(_program)
    kernel, line = initial("conv/kernel", [3, 3, 3, 6]), initial("conv1d/kernel", [1, 3, 3, 6])
    np.testing.assert_array_equal(found["kernel"], kernel)
    assert_close(found["y"], tf.nn.conv2d(IMAGES, kernel, 2, "SAME"), terms=27)
    summed = tf.nn.conv1d(IMAGES.sum(1), line[0], 1, "SAME")
    assert_close(found["line"], summed, terms=(8, 9))
    own = "separable/depthwise_conv_hack/depthwise_dense_"
    (before, here), bias = (initial(f"{own}{i}/kernel", [3]) for i in range(2)), initial(f"{own}0/bias", [3])
    shifted = np.pad(IMAGES.sum(1), [(0, 0), (1, 0), (0, 0)])[:, :-1]
    depthwise = shifted * before + IMAGES.sum(1) * here + bias
    pointwise = depthwise @ initial("separable/pointwise_dense/kernel", [3, 6])
    assert_close(found["separable"], pointwise + initial("separable/pointwise_dense/bias", [6]), terms=(8, 2, 3))
    np.testing.assert_array_equal(found["largest"], tf.nn.max_pool2d(IMAGES, 2, 2, "VALID"))
    assert_close(found["mean"], tf.nn.avg_pool2d(IMAGES, (2, 4), (2, 4), "VALID"), terms=8)
