"""Metrics and predictions of a model that gives each example one class."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf

TOP = 5
"""How many of the likeliest classes may be right for "top_5_accuracy"."""

_MANY_CLASSES = 2 * TOP


def class_metrics(
    logits: mtf.Tensor,
    labels: mtf.Tensor,
    classes: mtf.Dimension,
    *,
    is_training: bool,
    label_smoothing: float = 0.0,
    check_labels: bool,
) -> dict[str, mtf.Tensor]:
    """The "loss" and "accuracy" [batch] of logits [batch, classes]. Smoothing is for training alone.

    An evaluation with more than ten classes also has "top_5_accuracy": whether one of the five likeliest is right.

    Labels are integers [batch], or a distribution over the classes, floating [batch, classes], as mixup makes it. The
    right class of a distribution is its likeliest one.
    """
    smoothing = label_smoothing if is_training else 0.0
    loss = mtf.layers.softmax_cross_entropy_with_logits(
        logits, labels, classes, label_smoothing=smoothing, check_targets=check_labels
    )
    right = labels if labels.dtype.is_integer else labels.argmax(classes)
    found = {"loss": loss, "accuracy": mtf.equal(logits.argmax(classes), right).astype(tf.float32)}
    if is_training or classes.size <= _MANY_CLASSES:
        return found
    _, likeliest = mtf.top_k(logits, classes, ("likeliest", TOP))
    is_among = mtf.equal(likeliest, right).astype(tf.float32)
    return {**found, f"top_{TOP}_accuracy": is_among.sum("likeliest")}


def class_predictions(logits: mtf.Tensor, classes: mtf.Dimension) -> dict[str, mtf.Tensor]:
    """The likeliest "classes" [batch] and "probabilities" [batch, classes] of logits [batch, classes]."""
    probabilities = logits.astype(tf.float32).softmax(classes)
    return {"classes": logits.argmax(classes), "probabilities": probabilities}
