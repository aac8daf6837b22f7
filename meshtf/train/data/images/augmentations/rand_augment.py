"""RandAugment: some of a list of changes, drawn at random, all of one strength."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.changes import CHANGES, changed

MOST_MAGNITUDE = 10

NAMES = tuple(name for name in CHANGES if name != "invert")
"""The names of the paper's changes."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class RandAugment:
    """Makes some changes to each image, drawn with replacement (Cubuk et al. 2019). It is an `Augmentation`.

    There are fourteen:

    - identity
    - auto_contrast, equalize, posterize, solarize
    - colour, contrast, brightness, sharpness
    - rotate, shear_x, shear_y, translate_x, translate_y

    At the magnitude 10 an image turns by 30 degrees, or moves by 45 % of its side. Places that it leaves empty
    are grey.

    Attributes:
      num_layers: how many changes are made to each image.
      magnitude: their strength, from 0 to 10.

    Raises:
      ConfigurationError: if a number is out of its range.
    """

    num_layers: int = 2
    magnitude: float = 9.0

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if self.num_layers < 0:
            raise ConfigurationError(f"RandAugment.num_layers must be 0 or more, and is {self.num_layers}")
        if not 0 <= self.magnitude <= MOST_MAGNITUDE:
            raise ConfigurationError(
                f"RandAugment.magnitude must be from 0 to {MOST_MAGNITUDE}, and is {self.magnitude}"
            )

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_uniform([self.num_layers, 2], seed, 0, 2**30, tf.int32)
        strength = tf.constant(self.magnitude / MOST_MAGNITUDE)
        for layer in range(self.num_layers):
            sign = tf.cast(drawn[layer, 1] % 2 * 2 - 1, tf.float32)
            image = changed(NAMES, image, drawn[layer, 0] % len(NAMES), strength, sign)
        return image
