"""Meshes on paper: the same report as on devices, for meshes and models of any size."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import LayoutError, UsageError
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.transformer import (
    FeedForward,
    LearnedPositions,
    SelfAttention,
    TokenEmbedding,
    TransformerStack,
)
from meshtf.models import TransformerLM

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 32)


def train_step(x: mtf.Tensor) -> mtf.Tensor:
    h = mtf.layers.dense(x, [D_FF], activation=mtf.relu)
    loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(h, [D_MODEL])))
    mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
    return loss


def language_model(num_layers: int, *, unroll: bool) -> TransformerLM:
    """The dense model of 175 billion parameters (Brown et al. 2020), with as many layers."""
    stack = TransformerStack(
        [SelfAttention(AttentionConfig(96, 128)), FeedForward(49152, "gelu")],
        num_layers,
        unroll=unroll,
        recompute="nothing",
    )
    embedding = TokenEmbedding(mtf.layers.VocabularyEmbedding(50257), LearnedPositions(2048))
    return TransformerLM(12288, embedding, stack)


def lowered(model: TransformerLM) -> mtf.Function:
    """Its training step, of 1,024 x 2,048 tokens, on 2,048 cores."""

    def train_step(targets: mtf.Tensor) -> mtf.Tensor:
        values, weights = model.metrics({"targets": targets}, True)["loss"]
        loss = mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)
        mtf.optimize.AdamWOptimizer(1e-4).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl("data:64;model:32", "batch:data;heads:model;d_ff:model;vocab:model")
    dtype = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    spec = mtf.TensorSpec([("batch", 1024), ("length", 2048)], tf.int32)
    return mtf.function(train_step, mesh_impl, inputs={"targets": spec}, variable_dtype=dtype)


def test_the_report_is_that_of_devices() -> None:
    inputs, layout = {"x": mtf.TensorSpec([BATCH, D_MODEL])}, "batch:rows;d_ff:cols"
    on_paper = mtf.function(train_step, mtf.PlanMeshImpl("rows:2;cols:2", layout), inputs=inputs)
    on_devices = mtf.function(train_step, mtf.SpmdMeshImpl("rows:2;cols:2", layout), inputs=inputs)
    assert str(on_paper.report()) == str(on_devices.report())


def test_parameters_may_be_kept_in_another_layout() -> None:
    impl = mtf.PlanMeshImpl("rows:4", "batch:rows", parameter_layout="d_ff:rows")
    step = mtf.function(train_step, impl, inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])})
    kernel = next(v for v in step.report().variables if v.name == "dense/kernel")
    assert kernel.bytes_per_core * 4 == kernel.bytes_whole


def test_nothing_runs() -> None:
    step = mtf.function(train_step, mtf.PlanMeshImpl("rows:64", ""), inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])})
    with pytest.raises(UsageError, match=r'"train_step" was lowered for mesh \[rows:64\] on paper, which runs nothing'):
        step(x=np.zeros([16, 8], np.float32))
    with pytest.raises(
        LayoutError, match=r'names mesh axis "row", which mesh \[rows:2\] does not have; did you mean "rows"'
    ):
        mtf.PlanMeshImpl("rows:2", "batch:row")
    with pytest.raises(UsageError, match="kernel_platform must be \"cuda\" or empty, and is 'CUDA'"):
        mtf.PlanMeshImpl("rows:2", "batch:rows", kernel_platform="CUDA")


@pytest.mark.parametrize("unroll", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_model_of_175_billion_parameters_is_lowered_for_2048_cores(unroll: bool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = lowered(language_model(96, unroll=unroll))
    report = step.report()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * 2**20  # KiB
    weights = sum(variable.unpadded_shape.size for variable in step.graph.trainable_variables)
    assert weights == pytest.approx(174.6e9, rel=0.001)
    assert len(step.variables) == 0
    sent = sum(collective.bytes_sent * collective.times for collective in report.collectives)
    assert sent > 2**39
    # Six FLOPs for each weight and token, and the forward pass once more.
    tokens = 1024 * 2048
    assert report.flops_per_core * 2048 == pytest.approx(8 * weights * tokens, rel=0.1)
