"""The protocol of random changes to a training image."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import tensorflow as tf


@runtime_checkable
class Augmentation(Protocol):
    """Changes one training image. It depends only on the image and the seed."""

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the image after the change, in the same shape.

        Args:
          image: [height, width, channels] float32, from 0 to 255.
          seed: a seed of its own for each example and each augmentation, [2] int64.
        """
        ...
