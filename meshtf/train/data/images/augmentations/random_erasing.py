"""Erases a window of some images."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.crops import check_window, drawn_window
from meshtf.train.data.images.augmentations.pixel_operations import BRIGHTEST

_ATTEMPTS = 100


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """Fills a window of some images with random values, each pixel with its own (Zhong et al. 2017).

    It is an `Augmentation`. An image in which no such window is found in 100 draws stays as it is.

    Attributes:
      probability: the share of the images that lose a window.
      area: the least and the largest area of the window, as parts of the image's.
      aspect_ratio: the least and the largest ratio of its width to its height.

    Raises:
      ConfigurationError: if a number is impossible.
    """

    probability: float = 0.25
    area: tuple[float, float] = (0.02, 1 / 3)
    aspect_ratio: tuple[float, float] = (0.3, 1 / 0.3)

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if not 0 <= self.probability <= 1:
            raise ConfigurationError(f"RandomErasing.probability must be from 0 to 1, and is {self.probability}")
        check_window("RandomErasing", self.area, self.aspect_ratio)

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        chance_seed, window_seed, fill_seed = (tf.random.experimental.stateless_fold_in(seed, i) for i in range(3))
        shape = tf.shape(image)
        window = drawn_window(shape, window_seed, self.area, self.aspect_ratio, _ATTEMPTS)
        rows, columns = (
            (places >= window[axis]) & (places < window[axis] + window[axis + 2])
            for axis, places in enumerate((tf.range(shape[0]), tf.range(shape[1])))
        )
        is_found = tf.reduce_any(window[2:] < shape[:2])
        is_erased = is_found & (tf.random.stateless_uniform([], chance_seed) < self.probability)
        is_inside = (rows[:, tf.newaxis] & columns)[..., tf.newaxis]
        return tf.where(is_erased & is_inside, tf.random.stateless_uniform(shape, fill_seed, 0, BRIGHTEST), image)
