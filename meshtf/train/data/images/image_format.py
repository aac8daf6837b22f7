"""The size and the values of images as a model receives them."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.pixel_operations import BRIGHTEST

_CHANNELS = (1, 3)


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ImageFormat:
    """The images that a model gets: squares of float32, (values from 0 to 1 - mean) / std.

    The default mean and standard deviation are those of ImageNet's training images.

    Attributes:
      size: height and width.
      channels: 3 for red, green and blue, 1 for grey.
      mean: the mean to subtract: a list of one number, or of one for each channel.
      std: the standard deviation to divide by: a list of one number, or of one for each channel.

    Raises:
      ConfigurationError: if a number is impossible, or there are more or fewer numbers than channels.
    """

    size: int = 224
    channels: int = 3
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if self.size < 1 or self.channels not in _CHANNELS:
            raise ConfigurationError(
                f"ImageFormat.size must be 1 or more, and channels 1 or 3, and they are {self.size} and {self.channels}"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels) or (name == "std" and min(values) <= 0):
                raise ConfigurationError(
                    f"ImageFormat.{name} must be one number or {self.channels}, one for each channel"
                    f"{', above 0' if name == 'std' else ''}, and is {tuple(values)}"
                )

    @property
    def shape(self) -> mtf.Shape:
        """Returns the named shape of an image."""
        return mtf.Shape([("height", self.size), ("width", self.size), ("channels", self.channels)])

    def resized(self, pixels: tf.Tensor) -> tf.Tensor:
        """Resizes by bilinear interpolation: [height, width, channels] uint8 -> [size, size, channels] float32."""
        return tf.ensure_shape(tf.image.resize(pixels, [self.size, self.size]), [self.size, self.size, self.channels])

    def normalized(self, image: tf.Tensor) -> tf.Tensor:
        """Scales values from 0 to 255, [size, size, channels] float32."""
        return (image / BRIGHTEST - tf.constant(self.mean)) / tf.constant(self.std)
