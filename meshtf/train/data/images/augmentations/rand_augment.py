"""RandAugment: some of a list of changes, drawn at random, all of one strength."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TypeAlias

import gin
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations import pixel_operations

MOST_MAGNITUDE = 10

Change: TypeAlias = "Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]"
"""(image, strength from 0 to 1, sign -1 or 1) -> image."""

_MOST_DEGREES, _MOST_SHEAR, _MOST_MOVED, _MOST_FACTOR = 30.0, 0.3, 100 / 331, 0.9
"""The strength 1 of rotations, shears, translations (as a part of the image) and of factors' distance from 1."""


def _enhanced(
    change: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], image: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor
) -> tf.Tensor:
    return change(image, 1 + sign * strength * _MOST_FACTOR)


def _translated(axis: int, image: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    pixels = tf.round(sign * strength * _MOST_MOVED * tf.cast(tf.shape(image)[axis], tf.float32))
    return pixel_operations.moved(image, [1.0, 0.0, pixels * (axis == 1), 0.0, 1.0, pixels * (axis == 0)])


def _sheared(axis: int, image: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    slope = sign * strength * _MOST_SHEAR
    return pixel_operations.moved(image, [1.0, slope * (axis == 1), 0.0, slope * (axis == 0), 1.0, 0.0])


CHANGES: Mapping[str, Change] = {
    "identity": lambda image, strength, sign: image,
    "auto_contrast": lambda image, strength, sign: pixel_operations.auto_contrast(image),
    "rotate": lambda image, strength, sign: pixel_operations.rotated(image, sign * strength * _MOST_DEGREES),
    "posterize": lambda image, strength, sign: pixel_operations.posterized(image, 8 - tf.floor(strength * 4)),
    "solarize": lambda image, strength, sign: pixel_operations.solarized(image, 256 * (1 - strength)),
    "colour": functools.partial(_enhanced, pixel_operations.saturation),
    "contrast": functools.partial(_enhanced, pixel_operations.contrast),
    "brightness": functools.partial(_enhanced, pixel_operations.brightness),
    "shear_x": functools.partial(_sheared, 1),
    "shear_y": functools.partial(_sheared, 0),
    "translate_x": functools.partial(_translated, 1),
    "translate_y": functools.partial(_translated, 0),
}
"""The changes by name: the paper's without equalize and sharpness."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class RandAugment:
    """Makes some changes to each image, drawn with replacement (Cubuk et al. 2019). It is an `Augmentation`.

    There are twelve:

    - identity
    - auto_contrast, posterize, solarize
    - colour, contrast, brightness
    - rotate, shear_x, shear_y, translate_x, translate_y

    The paper has also equalize and sharpness. At the magnitude 10 an image turns
    by 30 degrees, or moves by 30 % of its side. Places that an image leaves are grey.

    Attributes:
      num_layers: how many changes are made to each image.
      magnitude: their strength, from 0 to 10.

    Raises:
      ConfigurationError: if a number is out of its range.
    """

    num_layers: int = 2
    magnitude: float = 9.0

    def __post_init__(self) -> None:
        if self.num_layers < 0:
            raise ConfigurationError(f"RandAugment.num_layers must be 0 or more, and is {self.num_layers}")
        if not 0 <= self.magnitude <= MOST_MAGNITUDE:
            raise ConfigurationError(
                f"RandAugment.magnitude must be from 0 to {MOST_MAGNITUDE}, and is {self.magnitude}"
            )

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_uniform([self.num_layers, 2], seed, 0, 2**30, tf.int32)
        for layer in range(self.num_layers):
            image = self._changed(image, drawn[layer, 0] % len(CHANGES), drawn[layer, 1] % 2)
        return image

    def _changed(self, image: tf.Tensor, choice: tf.Tensor, coin: tf.Tensor) -> tf.Tensor:
        strength = tf.constant(self.magnitude / MOST_MAGNITUDE)
        sign = tf.cast(coin * 2 - 1, tf.float32)
        made = tf.switch_case(choice, [functools.partial(change, image, strength, sign) for change in CHANGES.values()])
        return tf.ensure_shape(made, image.shape)
