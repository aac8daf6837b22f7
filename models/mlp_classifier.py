"""A multi-layer perceptron that classifies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin

import meshtf as mtf
from meshtf.field_checks import check_kinds
from meshtf.models._activations import in_activation_dtype
from meshtf.models._classification import class_metrics, class_predictions
from meshtf.models._features import feature


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class MLPClassifier:
    """Dense layers with an activation between them, and a softmax over classes.

    A layer's output is called `hidden`, whatever its size, so that one layout rule splits all of them.

    Attributes:
      num_classes: size of the dimension `classes`.
      hidden_sizes: size of the dimension `hidden` after each hidden layer.
      activation: the activation's name, one of `mtf.layers.activation_names()`.
      check_labels: whether a label that is no class raises IndexRangeError; if not, its loss is 0.
    """

    num_classes: int
    hidden_sizes: Sequence[int] = (256,)
    activation: str = "relu"
    check_labels: bool = True

    def __post_init__(self) -> None:
        sizes = self.hidden_sizes if isinstance(self.hidden_sizes, list | tuple) else [None]
        if not all(isinstance(size, int) and size > 0 for size in [self.num_classes, *sizes]):
            raise ValueError(
                f"MLPClassifier: num_classes must be a positive integer and hidden_sizes a sequence of them, such as "
                f"(256,); they are {self.num_classes!r} and {self.hidden_sizes!r}"
            )
        mtf.layers.activation_function(self.activation)
        check_kinds(self)

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor) -> mtf.Tensor:
        """The logits: [batch, pixels] -> [batch, classes]."""
        h = in_activation_dtype(images)
        for number, size in enumerate(self.hidden_sizes):
            hidden = mtf.Dimension("hidden", size)
            h = mtf.layers.dense(h, [hidden], activation=self.activation, name=f"hidden_{number}")
        return mtf.layers.dense(h, [self.classes], name="logits")

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, mtf.Tensor]:
        """The "loss" and "accuracy" of each example [batch], from `images` [batch, pixels] and `labels` [batch]."""
        logits, labels = self.logits(feature(features, "images")), feature(features, "labels")
        return class_metrics(logits, labels, self.classes, is_training=is_training, check_labels=self.check_labels)

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch] and "probabilities" [batch, classes] of `images` [batch, pixels]."""
        return class_predictions(self.logits(feature(features, "images")), self.classes)
