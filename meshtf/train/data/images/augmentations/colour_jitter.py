"""Changes the colours of images at random."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.pixel_operations import brightness, contrast, saturation


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ColourJitter:
    """Multiplies brightness, contrast and saturation, in this order, by random factors. It is an `Augmentation`.

    Attributes:
      brightness: factors are from 1 - brightness to 1 + brightness.
      contrast: the same, for differences from the mean grey of the image.
      saturation: the same, for differences from the grey of each pixel.

    Raises:
      ConfigurationError: if one is below 0 or above 1.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        for name, value in dataclasses.asdict(self).items():
            if not 0 <= value <= 1:
                raise ConfigurationError(f"ColourJitter.{name} must be from 0 to 1, and is {value}")

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        most = [self.brightness, self.contrast, self.saturation]
        factors = tf.unstack(1 + tf.random.stateless_uniform([3], seed, -1, 1) * most)
        for change, factor in zip((brightness, contrast, saturation), factors, strict=True):
            image = change(image, factor)
        return image
