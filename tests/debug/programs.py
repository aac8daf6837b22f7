"""A small training step with an override of the layout, on paper."""

from __future__ import annotations

import functools

import tensorflow as tf

import meshtf as mtf

CLASSES = mtf.Dimension("classes", 8)
SPECS = {"x": mtf.TensorSpec("batch:8 <b>:12"), "labels": mtf.TensorSpec("batch:8", tf.int32)}


def training_step(x: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    h = mtf.layers.dense(x, [mtf.Dimension("hidden", 16)], activation=mtf.relu, name="hidden")
    h = mtf.with_layout(mtf.export(h, "seen"), "hidden:cols")
    logits = mtf.layers.dense(h, [CLASSES], name="logits")
    loss = mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(labels, CLASSES), CLASSES)
    loss = mtf.reduce_mean(loss, name="loss")
    mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
    return loss


@functools.cache
def on_paper() -> mtf.Function:
    return mtf.function(training_step, mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows;<b>:cols"), SPECS)
