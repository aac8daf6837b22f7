"""Convolutions and pooling of the original are TensorFlow's, under the names of its variables."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import ShapeError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated, initial

DIMS = [mtf.Dimension(n, s) for n, s in (("batch", 4), ("rows", 8), ("columns", 8), ("channels", 3))]
OUT = mtf.Dimension("hidden", 6)
IMAGES = initial("images", [4, 8, 8, 3])


def _program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, IMAGES, DIMS)
    y = mtf.layers.conv2d(x, OUT, (3, 3), (2, 2), name="conv")
    with tf.compat.v1.variable_scope("conv", reuse=True):
        kernel = mtf.get_variable(mesh, "kernel", [("fh", 3), ("fw", 3), ("channels", 3), OUT])
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


OUT6 = mtf.Dimension("out", 6)
BLOCKED = [mtf.Dimension(n, s) for n, s in (("batch", 4), ("hidden", 2), ("w_blocks", 4), ("rows", 4), ("columns", 2))]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("mesh_name", ["one core", "2x2"])
def test_images_in_blocks(mesh_name: str, stride: int) -> None:
    """The blocks of rows are split: they have the name of a rule."""
    in_blocks = IMAGES.reshape(4, 2, 4, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    volumes = np.stack([in_blocks, 2.0 * in_blocks], axis=-2)
    _, rows, columns, *_ = BLOCKED

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        x = mtf.import_tf_tensor(mesh, in_blocks, [*BLOCKED, ("channels", 3)])
        v = mtf.import_tf_tensor(mesh, volumes, [*BLOCKED, ("width", 2), ("channels", 3)])
        step = (stride, stride)
        both = mtf.layers.conv2d_with_blocks(x, OUT6, (3, 5), step, "SAME", rows, columns, name="both")
        one = mtf.layers.conv2d_with_blocks(x, OUT6, (3, 3), step, w_blocks_dim=columns, name="one")
        none = mtf.layers.conv2d_with_blocks(x, OUT6, (3, 3), step, name="none")
        volume = mtf.layers.conv3d_with_blocks(
            v, OUT6, (3, 3, 3), (*step, 1), d_blocks_dim=rows, h_blocks_dim=columns, name="volume"
        )
        return [both, one, none, volume]

    both, one, none, volume = evaluated(program, mesh_name)
    kernels = {name: initial(f"{name}/kernel", [3, 3, 3, 6]) for name in ("one", "none")}
    wide, deep = initial("both/kernel", [3, 5, 3, 6]), initial("volume/kernel", [3, 3, 3, 3, 6])
    height, width = 4 // stride, 2 // stride

    def blocks(whole: tf.Tensor) -> np.ndarray:
        return (
            whole.numpy()
            .reshape(4, 2, height, 4, width, *whole.shape[3:])
            .transpose(0, 1, 3, 2, 4, *range(5, len(whole.shape) + 2))
        )

    assert_close(both, blocks(tf.nn.conv2d(IMAGES, wide, stride, "SAME")), terms=45)
    halves = tf.concat([tf.nn.conv2d(h, kernels["one"], stride, "SAME") for h in tf.split(IMAGES, 2, 1)], 1)
    assert_close(one, blocks(halves), terms=27)
    apart = tf.nn.conv2d(in_blocks.reshape(32, 4, 2, 3), kernels["none"], stride, "SAME")
    assert_close(none, apart.numpy().reshape(none.shape), terms=27)
    whole = tf.stack([IMAGES, 2.0 * IMAGES], 3)
    steps = [1, stride, stride, 1, 1]
    assert_close(volume, blocks(tf.nn.conv3d(whole, deep, steps, "SAME")), terms=81)


def test_blocks_refuse_what_they_cannot_have() -> None:
    x = mtf.zeros(mtf.Mesh(mtf.Graph(), "mesh"), [*BLOCKED, ("channels", 3)])
    with pytest.raises(ShapeError, match='the padding "SAME"'):
        mtf.layers.conv2d_with_blocks(x, OUT, padding="VALID", h_blocks_dim=BLOCKED[1])
    with pytest.raises(ShapeError, match="size 2 along w_blocks, which 4 blocks do not divide"):
        mtf.layers.conv2d_with_blocks(x, OUT6, strides=(4, 4), w_blocks_dim=BLOCKED[2])
