"""The part of an image that an example shows: the middle, or a part drawn at random."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import gin
import tensorflow as tf

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError


@runtime_checkable
class Crop(Protocol):
    """Chooses a window of an image."""

    def window(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns the window of an image as [top, left, height, width], int32.

        Args:
          shape: height, width and channels of the image, [3] int32.
          seed: the example's seed, [2] int64.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class CentralCrop:
    """The square in the middle of an image.

    Attributes:
      fraction: its side as a part of the image's shorter side, in (0, 1].

    Raises:
      ConfigurationError: if the fraction is another number.
    """

    fraction: float = 0.875

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if not 0 < self.fraction <= 1:
            raise ConfigurationError(f"CentralCrop.fraction must be in (0, 1], and is {self.fraction}")

    def window(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        height, width = shape[0], shape[1]
        shorter = tf.cast(tf.minimum(height, width), tf.float32)
        side = tf.maximum(tf.cast(shorter * self.fraction, tf.int32), 1)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side])


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class DistortedCrop:
    """A part of an image of random area and aspect ratio, at a random place (Szegedy et al. 2015).

    An image in which no such part is found in `attempts` draws is shown whole.

    Attributes:
      area: the least and the largest area, as parts of the image's.
      aspect_ratio: the least and the largest ratio of width to height.
      attempts: the number of draws.

    Raises:
      ConfigurationError: if a range is empty or impossible, or there is no draw.
    """

    area: tuple[float, float] = (0.08, 1.0)
    aspect_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    attempts: int = 10

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        check_window("DistortedCrop", self.area, self.aspect_ratio)
        if self.attempts < 1:
            raise ConfigurationError(f"DistortedCrop.attempts must be 1 or more, and is {self.attempts}")

    def window(self, shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return drawn_window(shape, seed, self.area, self.aspect_ratio, self.attempts)


def drawn_window(
    shape: tf.Tensor, seed: tf.Tensor, area: tuple[float, float], aspect_ratio: tuple[float, float], attempts: int
) -> tf.Tensor:
    """Draws a window of an image, [top, left, height, width] int32. It is the whole image if no window is found."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=aspect_ratio,
        area_range=area,
        max_attempts=attempts,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def check_window(owner: str, area: tuple[float, float], aspect_ratio: tuple[float, float]) -> None:
    """Checks the ranges from which a window's area and aspect ratio are drawn.

    Raises:
      ConfigurationError: if a range is empty or impossible.
    """
    for name, (least, most), limit in (("area", area, 1.0), ("aspect_ratio", aspect_ratio, 100.0)):
        if not 0 < least <= most <= limit:
            raise ConfigurationError(
                f"{owner}.{name} must be two ascending numbers above 0 and to {limit:g}, and is {(least, most)}"
            )
