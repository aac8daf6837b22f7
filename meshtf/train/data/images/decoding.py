"""Decodes an image, or the window of it that is needed, with TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

Window: TypeAlias = "Callable[[tf.Tensor], tf.Tensor]"
"""The shape of an image, [3] int32 -> its window as [top, left, height, width], int32."""

_IS_FANCY = False
"""Whether the colours of neighbours are blended where a JPEG has fewer of them than pixels. At the border of a window
they would depend on the window. So they are not, and a window has the pixels that the whole image has there."""


def decoded(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns the pixels of an image, [height, width, channels] uint8.

    Args:
      image: the bytes of a file, [] string, or pixels, which are returned as they are.
      channels: 1 for grey, 3 for red, green and blue. Images of other kinds are converted, those of four inks (CMYK)
        and those with transparency included.
    """
    if image.dtype == tf.string:
        image = tf.cond(
            tf.io.is_jpeg(image),
            lambda: tf.io.decode_jpeg(image, channels, fancy_upscaling=_IS_FANCY),
            lambda: tf.io.decode_image(image, channels, expand_animations=False),
        )
    return tf.ensure_shape(image, [None, None, channels])


def decoded_window(image: tf.Tensor, window: Window, channels: int) -> tf.Tensor:
    """Returns the pixels of a window of an image, [height, width, channels] uint8.

    Only the lines of a JPEG that the window needs are decoded. Arguments are those of `decoded`.
    """

    def of_jpeg() -> tf.Tensor:
        shape = tf.image.extract_jpeg_shape(image)
        return tf.io.decode_and_crop_jpeg(image, window(shape), channels, fancy_upscaling=_IS_FANCY)

    def of_pixels() -> tf.Tensor:
        pixels = decoded(image, channels)
        top, left, height, width = tf.unstack(window(tf.shape(pixels)))
        return pixels[top : top + height, left : left + width]

    found = of_pixels() if image.dtype != tf.string else tf.cond(tf.io.is_jpeg(image), of_jpeg, of_pixels)
    return tf.ensure_shape(found, [None, None, channels])
