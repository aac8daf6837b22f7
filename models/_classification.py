"""Metrics and predictions of a model that gives each example one class."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf


def class_metrics(
    logits: mtf.Tensor, labels: mtf.Tensor, classes: mtf.Dimension, *, label_smoothing: float, check_labels: bool
) -> dict[str, mtf.Tensor]:
    """The "loss" and "accuracy" [batch] of logits [batch, classes].

    Labels are integers [batch], or a distribution over the classes, floating [batch, classes], as mixup makes it. The
    right class of a distribution is its likeliest one.
    """
    loss = mtf.layers.softmax_cross_entropy_with_logits(
        logits, labels, classes, label_smoothing=label_smoothing, check_targets=check_labels
    )
    right = labels if labels.dtype.is_integer else labels.argmax(classes)
    is_right = mtf.equal(logits.argmax(classes), right)
    return {"loss": loss, "accuracy": is_right.astype(tf.float32)}


def class_predictions(logits: mtf.Tensor, classes: mtf.Dimension) -> dict[str, mtf.Tensor]:
    """The likeliest "classes" [batch] and "probabilities" [batch, classes] of logits [batch, classes]."""
    probabilities = logits.astype(tf.float32).softmax(classes)
    return {"classes": logits.argmax(classes), "probabilities": probabilities}
