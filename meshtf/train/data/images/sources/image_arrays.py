"""Arrays in memory as a source of images."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import checksum
from meshtf.train.data.images.source import Images

_WRONG_ARRAYS = """\
ImageArrays takes images [examples, height, width, channels] of uint8 and labels [examples] of integers, one or more,
but was given {images} and {labels}"""


@dataclasses.dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images in memory.

    Attributes:
      pixels: the images, [examples, height, width, channels] uint8.
      labels: their labels, [examples] of integers, from 0.
      name: their name in messages.

    Raises:
      ConfigurationError: if the arrays have other shapes or types, or no example.
    """

    pixels: np.ndarray
    labels: np.ndarray
    name: str = "image arrays"

    def __post_init__(self) -> None:
        pixels, labels = np.asarray(self.pixels), np.asarray(self.labels)
        are_images = pixels.ndim == 4 and pixels.dtype == np.uint8 and pixels.size
        if not are_images or labels.shape != pixels.shape[:1] or labels.dtype.kind not in "iu":
            raise ConfigurationError(_WRONG_ARRAYS.format(images=_described(pixels), labels=_described(labels)))

    def __str__(self) -> str:
        return self.name

    def images(self) -> Images:
        pixels, labels = tf.constant(self.pixels), tf.constant(np.asarray(self.labels, np.int64))
        return Images(
            count=len(self.pixels),
            read=lambda index: (tf.gather(pixels, index), tf.gather(labels, index)),
            place=lambda index: f"{self.name}, image {index}",
            key=str,
            contents=checksum([np.asarray(self.pixels), np.asarray(self.labels, np.int64)]),
        )


def _described(array: np.ndarray[Any, Any]) -> str:
    return f"{list(array.shape)} of {array.dtype}"
