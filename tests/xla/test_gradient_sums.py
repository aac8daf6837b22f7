"""Gradients summed in a dtype of choice by eight replicas of an XLA program."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from xla_run import XlaRun

import meshtf as mtf

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 128), mtf.Dimension("d_ff", 128)
INPUTS = {"x": mtf.TensorSpec([BATCH, D_MODEL], tf.bfloat16), "y_grad": mtf.TensorSpec([BATCH, D_FF], tf.bfloat16)}


def train_step(x: mtf.Tensor, y_grad: mtf.Tensor) -> mtf.Tensor:
    """The gradient of the weights is the product of both inputs."""
    w = mtf.get_variable(x.mesh, "w", [D_MODEL, D_FF])
    loss = mtf.reduce_sum(mtf.cast(mtf.einsum([x, w], [BATCH, D_FF]) * y_grad, tf.float32))
    mtf.optimize.SgdOptimizer(1.0).minimize(loss)
    return loss


@pytest.mark.parametrize("shard_weight_update", [pytest.param(False, marks=pytest.mark.long), True])
def test_sums_in_float32_keep_every_digit(shard_weight_update: bool) -> None:
    bfloat16 = tf.bfloat16.as_numpy_dtype
    generator = np.random.default_rng(0)
    x = generator.uniform(1, 2, [8, 128]).astype(bfloat16)
    y_grad = generator.choice([0.5, 1, 2], [8, 128]).astype(bfloat16)
    exact = x.astype(np.float64).T @ y_grad.astype(np.float64)
    errors = []
    for sums_in in (tf.float32, tf.bfloat16):
        mesh_impl = mtf.TpuMeshImpl(
            "all:8",
            "batch:all",
            physical_torus="2x2",
            shard_weight_update=shard_weight_update,
            gradient_sum_dtype=sums_in,
        )
        dtype = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
        step = mtf.function(train_step, mesh_impl, inputs=INPUTS, variable_dtype=dtype)
        run = XlaRun.of(step, {"w": np.zeros([128, 128], np.float32)})
        run.check_collectives()
        run({"x": x, "y_grad": y_grad})
        errors.append(np.max(np.abs(run.variable("w") + exact) / exact))
    assert errors[0] == 0
    assert 2**-10 < errors[1] < 2**-6
