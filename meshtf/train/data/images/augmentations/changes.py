"""Changes of images, each by a strength and a sign, from which AutoAugment and RandAugment draw."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.train.data.images.augmentations import pixel_operations

Change: TypeAlias = "Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]"
"""(image, strength from 0 to 1, sign -1 or 1) -> image."""

_MOST_DEGREES, _MOST_SHEAR, _MOST_MOVED, _MOST_FACTOR = 30.0, 0.3, 150 / 331, 0.9
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
    "equalize": lambda image, strength, sign: pixel_operations.equalized(image),
    "invert": lambda image, strength, sign: pixel_operations.inverted(image),
    "posterize": lambda image, strength, sign: pixel_operations.posterized(image, 8 - tf.round(strength * 4)),
    "solarize": lambda image, strength, sign: pixel_operations.solarized(image, 256 * (1 - strength)),
    "colour": functools.partial(_enhanced, pixel_operations.saturation),
    "contrast": functools.partial(_enhanced, pixel_operations.contrast),
    "brightness": functools.partial(_enhanced, pixel_operations.brightness),
    "sharpness": functools.partial(_enhanced, pixel_operations.sharpness),
    "shear_x": functools.partial(_sheared, 1),
    "shear_y": functools.partial(_sheared, 0),
    "translate_x": functools.partial(_translated, 1),
    "translate_y": functools.partial(_translated, 0),
}
"""The changes by name."""


def changed(
    names: Sequence[str], image: tf.Tensor, choice: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor
) -> tf.Tensor:
    """Makes the change with the number `choice`, [] int32, of these names."""
    made = tf.switch_case(choice, [functools.partial(CHANGES[name], image, strength, sign) for name in names])
    return tf.ensure_shape(made, image.shape)
