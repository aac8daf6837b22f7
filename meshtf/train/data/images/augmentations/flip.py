"""Flips images."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Flip:
    """Exchanges left and right in half of the images. It is an `Augmentation`."""

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.image.stateless_random_flip_left_right(image, seed)
