"""Decodes an image, or the window of it that is needed, with TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from meshtf.train.data.images.augmentations.pixel_operations import grey

Decode: TypeAlias = "Callable[[int], tf.Tensor]"
"""Decodes an image into the given number of channels."""

Window: TypeAlias = "Callable[[tf.Tensor], tf.Tensor]"
"""The shape of an image, [3] int32 -> its window as [top, left, height, width], int32."""

_IS_FANCY = False
"""Whether to interpolate the colours of a JPEG that stores fewer colours than pixels. At the border of a window the
result would depend on the window. So it is off, and a window has the same pixels as the whole image has there."""

_BYTES = 256
"""The number of values of a byte, and of colours in a palette whose indices are bytes."""

_FILE_HEADER, _BITS_AT, _PALETTE_BITS, _LEAST_BMP = 14, 28, 8, 54
"""Numbers of the BMP format: the bytes before the second header, the place of the bits per pixel, the bits of an index
into a palette, and the least bytes of a file."""

_FLAGS_AT, _MOVES, _HAS_ALPHA, _LEAST_WEBP = 20, 2, 16, 30
"""Numbers of the extended WebP format: the place of the flags, two of them, and the least bytes of a file."""


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
    """The pixels of a JPEG of this shape. The kernel converts four inks to colours, but not to grey."""
    if channels != 1:
        return decode(channels)
    return tf.cond(tf.equal(shape[2], 4), lambda: _grey(decode(3)), lambda: decode(1))


def _of_other(image: tf.Tensor, channels: int) -> tf.Tensor:
    """The pixels of a PNG, BMP, GIF or WebP file. Only PNG's kernel converts colours to grey."""
    is_bmp = _says(image, 0, b"BM") & (tf.strings.length(image) >= _LEAST_BMP)
    is_webp = _says(image, 0, b"RIFF") & _says(image, 8, b"WEBP")

    def of_colours() -> tf.Tensor:
        cases = [(is_bmp, lambda: _of_bmp(image)), (is_webp, lambda: _of_webp(image))]
        colours = tf.case(cases, lambda: _decode_any(image, 3))
        return _grey(colours) if channels == 1 else colours

    return tf.cond(_says(image, 0, b"\x89PNG"), lambda: _decode_any(image, channels), of_colours)


def _says(image: tf.Tensor, place: int, word: bytes) -> tf.Tensor:
    """Whether a file has these bytes at this place, near its beginning."""
    begin = tf.strings.join([tf.strings.substr(image, 0, place + len(word)), bytes(place)])  # a file may be shorter
    return tf.equal(tf.strings.substr(begin, place, len(word)), word)


def _number(image: tf.Tensor, place: int, length: int) -> tf.Tensor:
    """The number in `length` bytes of a file: 1, 2 or 4."""
    dtype = {1: tf.uint8, 2: tf.uint16, 4: tf.int32}[length]
    return tf.cast(tf.io.decode_raw(tf.strings.substr(image, place, length), dtype)[0], tf.int32)


def _of_bmp(image: tf.Tensor) -> tf.Tensor:
    """The colours of a BMP. Its kernel mistakes indices into a palette for grey values."""

    def of_palette() -> tf.Tensor:
        places = tf.cast(tf.io.decode_image(image, expand_animations=False), tf.int32)[..., 0]
        rest = tf.strings.substr(image, _FILE_HEADER + _number(image, _FILE_HEADER, 4), 4 * _BYTES)
        numbers = tf.io.decode_raw(rest, tf.uint8)[: tf.strings.length(rest) // 4 * 4]
        palette = tf.reshape(numbers, [-1, 4])[:, 2::-1]  # blue, green, red and nothing
        return tf.gather(palette, places)

    has_palette = tf.equal(_number(image, _BITS_AT, 2), _PALETTE_BITS)
    return tf.cond(has_palette, of_palette, lambda: _decode_any(image, 3))


def _of_webp(image: tf.Tensor) -> tf.Tensor:
    """The colours of a WebP file. Its kernel cannot return fewer channels than the file declares.

    For an animation, the kernel writes four channels even if the file declares three. Then it writes beyond its memory,
    and the process ends. So the file's header is changed to declare four.
    """

    def of_extended() -> tf.Tensor:
        flags = _number(image, _FLAGS_AT, 1)
        said = tf.gather([bytes([n]) for n in range(_BYTES)], tf.bitwise.bitwise_or(flags, _HAS_ALPHA))
        rest = tf.strings.substr(image, _FLAGS_AT + 1, tf.strings.length(image))
        changed = tf.strings.join([tf.strings.substr(image, 0, _FLAGS_AT), said, rest])
        return tf.where(tf.bitwise.bitwise_and(flags, _MOVES) > 0, changed, image)

    is_extended = _says(image, 12, b"VP8X") & (tf.strings.length(image) >= _LEAST_WEBP)
    return _decode_any(tf.cond(is_extended, of_extended, lambda: image), 0)[..., :3]


def _decode_any(image: tf.Tensor, channels: int) -> tf.Tensor:
    return tf.io.decode_image(image, channels, expand_animations=False)


def _grey(colours: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.round(grey(tf.cast(tf.ensure_shape(colours, [None, None, 3]), tf.float32))), tf.uint8)
