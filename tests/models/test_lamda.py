"""LaMDA on paper (Thoppilan et al. 2022)."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from tests.models.transformers import configured


@pytest.mark.long
def test_the_largest_model_is_lowered_for_1024_chips_in_two_dimensions() -> None:
    """Batches of 256K tokens, as in the paper. A chip of TPU v3 has two cores of 16 GiB each."""
    model = configured("lamda_137b", "TransformerStack.recompute = 'nothing'", sizes="")

    def train_step(targets: mtf.Tensor) -> mtf.Tensor:
        values, _ = model.metrics({"targets": targets, "targets_weights": mtf.ones_like(targets)}, True)["loss"]
        loss = mtf.reduce_mean(values)
        mtf.optimize.AdafactorOptimizer().minimize(loss)
        return loss

    rules = "batch:rows;d_model:rows;heads:cols;d_ff:cols;vocab:cols"
    mesh_impl = mtf.PlanMeshImpl("rows:32;cols:64", rules, activation_layout="d_model:cols")
    dtype = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    inputs = {"targets": mtf.TensorSpec("batch:256 length:1024", tf.int32)}
    report = mtf.function(train_step, mesh_impl, inputs=inputs, variable_dtype=dtype).report()
    assert sum(v.bytes_whole for v in report.variables) > 137.7e9 * 4
    assert report.memory.variables < 1.1 * 137.7e9 * 4 / 2048
    assert report.memory.peak < 16 * 2**30
