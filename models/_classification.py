"""Metrics and predictions of a model that gives each example one class."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.class_ids import are_right, likeliest_classes
from meshtf.models._features import feature

TOP = 5
"""The number of likeliest classes among which "top_5_accuracy" looks for the right one."""

_MANY_CLASSES = 2 * TOP


class ImageClassifier(abc.ABC):
    """A convolutional network that gives each image one class. Subclasses define the settings.

    Attributes:
      num_classes: size of the dimension `classes`.
      label_smoothing: the share of each label that the loss divides equally among all classes.
      check_labels: whether a label that is no class raises IndexRangeError; if not, its loss is 0.
    """

    num_classes: int
    label_smoothing: float
    check_labels: bool

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    @abc.abstractmethod
    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes]."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, mtf.Tensor]:
        """The "loss" and "accuracy" [batch], from `images` [batch, height, width, channels] and `labels` [batch]."""
        return class_metrics(
            self.logits(feature(features, "images"), is_training),
            feature(features, "labels"),
            self.classes,
            is_training=is_training,
            label_smoothing=self.label_smoothing,
            check_labels=self.check_labels,
        )

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch] and "probabilities" [batch, classes] of `images`."""
        return class_predictions(self.logits(feature(features, "images"), is_training=False), self.classes)


def class_metrics(
    logits: mtf.Tensor,
    labels: mtf.Tensor,
    classes: mtf.Dimension,
    *,
    is_training: bool,
    label_smoothing: float = 0.0,
    check_labels: bool,
) -> dict[str, mtf.Tensor]:
    """The "loss" and "accuracy" [batch] of logits [batch, classes]. Only training smooths labels.

    An evaluation with more than ten classes also has "top_5_accuracy": whether one of the five likeliest is right.

    Labels are integers [batch], or a distribution over the classes, floating [batch, classes], as mixup makes it. The
    right class of a distribution is its likeliest one.
    """
    smoothing = label_smoothing if is_training else 0.0
    loss = mtf.layers.softmax_cross_entropy_with_logits(
        logits, labels, classes, label_smoothing=smoothing, check_targets=check_labels
    )
    right = likeliest_classes(labels, classes)
    found = {"loss": loss, "accuracy": are_right(logits.argmax(classes), right)}
    if is_training or classes.size <= _MANY_CLASSES:
        return found
    _, likeliest = mtf.top_k(logits, classes, ("likeliest", TOP))
    is_among = are_right(likeliest, right)
    return {**found, f"top_{TOP}_accuracy": is_among.sum("likeliest")}


def class_predictions(logits: mtf.Tensor, classes: mtf.Dimension) -> dict[str, mtf.Tensor]:
    """The likeliest "classes" [batch] and "probabilities" [batch, classes] of logits [batch, classes]."""
    probabilities = logits.astype(tf.float32).softmax(classes)
    return {"classes": logits.argmax(classes), "probabilities": probabilities}
