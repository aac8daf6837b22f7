"""A multi-layer perceptron that classifies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin
import tensorflow as tf

import meshtf as mtf


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class MLPClassifier:
    """Dense layers with an activation between them, and a softmax over classes.

    A layer's output is called `hidden`, whatever its size, so that one layout rule splits all of them.

    Attributes:
      num_classes: size of the dimension `classes`.
      hidden_sizes: size of the dimension `hidden` after each hidden layer.
      activation: name of a function of the language.
    """

    num_classes: int
    hidden_sizes: Sequence[int] = (256,)
    activation: str = "relu"

    def __post_init__(self) -> None:
        sizes = self.hidden_sizes if isinstance(self.hidden_sizes, list | tuple) else [None]
        if not all(isinstance(size, int) and size > 0 for size in [self.num_classes, *sizes]):
            raise ValueError(
                f"MLPClassifier: num_classes must be a positive integer and hidden_sizes a sequence of them, such as "
                f"(256,); they are {self.num_classes!r} and {self.hidden_sizes!r}"
            )
        if not callable(getattr(mtf, self.activation, None)):
            raise ValueError(
                f"MLPClassifier: activation {self.activation!r} is not a function of meshtf, such as 'relu'"
            )

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor) -> mtf.Tensor:
        """[batch, pixels] -> [batch, classes]."""
        h = images
        for number, size in enumerate(self.hidden_sizes):
            hidden = mtf.Dimension("hidden", size)
            h = mtf.layers.dense(h, [hidden], activation=getattr(mtf, self.activation), name=f"hidden_{number}")
        return mtf.layers.dense(h, [self.classes], name="logits")

    def metrics(self, images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        """[batch, pixels], [batch] -> "loss" and "accuracy" of each example, [batch]."""
        logits = self.logits(images)
        loss = mtf.layers.softmax_cross_entropy_with_logits(logits, labels, self.classes)
        is_right = mtf.equal(mtf.argmax(logits, self.classes), labels)
        return {"loss": loss, "accuracy": mtf.cast(is_right, tf.float32)}
