"""Decodes an image, or the window of it that is needed, with TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from meshtf.train.data.images.augmentations.pixel_operations import grey

Decode: TypeAlias = "Callable[[int], tf.Tensor]"
"""Decodes an image into so many channels."""

Window: TypeAlias = "Callable[[tf.Tensor], tf.Tensor]"
"""The shape of an image, [3] int32 -> its window as [top, left, height, width], int32."""

_IS_FANCY = False
"""Whether the colours of neighbours are blended where a JPEG has fewer of them than pixels. At the border of a window
they would depend on the window. So they are not, and a window has the pixels that the whole image has there."""


_GREYS = 256
_FILE_HEADER, _BITS_AT, _PALETTE_BITS, _LEAST_BMP = 14, 28, 8, 54
"""Of a BMP: the bytes before its second header, the place of the bits of a pixel, how many of them stand for a place in
a palette of colours, and the least bytes of a file."""


def decoded(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns the pixels of an image, [height, width, channels] uint8.

    Args:
      image: the bytes of a file, [] string, or pixels, which are returned as they are.
      channels: 1 for grey, 3 for red, green and blue. Images of other kinds are converted: those of four inks (CMYK),
        of colours in a palette, of 16 bits, and with transparency. An animation is its first picture.
    """
    if image.dtype == tf.string:
        whole = tf.cond(
            tf.io.is_jpeg(image),
            lambda: _of_jpeg(tf.image.extract_jpeg_shape(image), channels, _decode_jpeg(image)),
            lambda: _of_other(image, channels),
        )
        return tf.ensure_shape(whole, [None, None, channels])
    return tf.ensure_shape(image, [None, None, channels])


def decoded_window(image: tf.Tensor, window: Window, channels: int) -> tf.Tensor:
    """Returns the pixels of a window of an image, [height, width, channels] uint8.

    Only the lines of a JPEG that the window needs are decoded. Arguments are those of `decoded`.
    """

    def of_jpeg() -> tf.Tensor:
        shape = tf.image.extract_jpeg_shape(image)
        return _of_jpeg(shape, channels, _decode_jpeg(image, window(shape)))

    def of_pixels() -> tf.Tensor:
        pixels = decoded(image, channels)
        top, left, height, width = tf.unstack(window(tf.shape(pixels)))
        return pixels[top : top + height, left : left + width]

    found = of_pixels() if image.dtype != tf.string else tf.cond(tf.io.is_jpeg(image), of_jpeg, of_pixels)
    return tf.ensure_shape(found, [None, None, channels])


def _decode_jpeg(image: tf.Tensor, window: tf.Tensor | None = None) -> Decode:
    if window is None:
        return lambda channels: tf.io.decode_jpeg(image, channels, fancy_upscaling=_IS_FANCY)
    return lambda channels: tf.io.decode_and_crop_jpeg(image, window, channels, fancy_upscaling=_IS_FANCY)


def _of_jpeg(shape: tf.Tensor, channels: int, decode: Decode) -> tf.Tensor:
    """The pixels of a JPEG of this shape. The kernel makes colours of four inks, and no grey."""
    if channels != 1:
        return decode(channels)
    return tf.cond(tf.equal(shape[2], 4), lambda: _grey(decode(3)), lambda: decode(1))


def _of_other(image: tf.Tensor, channels: int) -> tf.Tensor:
    """The pixels of a PNG, BMP, GIF or WebP file. Only PNG's kernel makes grey of colours."""
    begin = tf.strings.substr(image, 0, 4)
    is_bmp = tf.equal(tf.strings.substr(begin, 0, 2), b"BM") & (tf.strings.length(image) >= _LEAST_BMP)

    def of_colours() -> tf.Tensor:
        colours = tf.cond(is_bmp, lambda: _of_bmp(image), lambda: _decode_any(image, 3))
        return _grey(colours) if channels == 1 else colours

    return tf.cond(tf.equal(begin, b"\x89PNG"), lambda: _decode_any(image, channels), of_colours)


def _of_bmp(image: tf.Tensor) -> tf.Tensor:
    """The colours of a BMP. Its kernel takes places in a palette for grey."""

    def number(place: int, length: int) -> tf.Tensor:
        dtype = tf.uint16 if length == 2 else tf.int32
        return tf.cast(tf.io.decode_raw(tf.strings.substr(image, place, length), dtype)[0], tf.int32)

    def of_palette() -> tf.Tensor:
        places = tf.cast(tf.io.decode_image(image, expand_animations=False), tf.int32)[..., 0]
        rest = tf.strings.substr(image, _FILE_HEADER + number(_FILE_HEADER, 4), 4 * _GREYS)
        palette = tf.reshape(tf.io.decode_raw(rest, tf.uint8), [-1, 4])[:, 2::-1]  # blue, green, red and nothing
        return tf.gather(palette, places)

    has_palette = tf.equal(number(_BITS_AT, 2), _PALETTE_BITS)
    return tf.cond(has_palette, of_palette, lambda: _decode_any(image, 3))


def _decode_any(image: tf.Tensor, channels: int) -> tf.Tensor:
    return tf.io.decode_image(image, channels, expand_animations=False)


def _grey(colours: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.round(grey(tf.cast(tf.ensure_shape(colours, [None, None, 3]), tf.float32))), tf.uint8)
