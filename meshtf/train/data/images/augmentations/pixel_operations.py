"""Changes to the pixels of an image [height, width, channels] float32, from 0 to 255, by a given amount."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

BRIGHTEST = 255.0

FILL = 128.0
"""The grey of places that a moved image leaves empty."""


def blended(base: tf.Tensor, image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Returns `base` for the factor 0, the image for 1, and an exaggeration of it above 1."""
    return tf.clip_by_value(base + (image - base) * factor, 0.0, BRIGHTEST)


def brightness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    return blended(tf.zeros_like(image), image, factor)


def contrast(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scales the differences from the mean grey of the image."""
    return blended(tf.reduce_mean(grey(image)) * tf.ones_like(image), image, factor)


def saturation(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scales the differences from the grey of each pixel. An image of one channel stays as it is."""
    return blended(grey(image), image, factor)


def grey(image: tf.Tensor) -> tf.Tensor:
    """Returns the luma of the image's pixels, [height, width, 1], by the weights of ITU-R BT.601."""
    if image.shape[-1] == 1:
        return image
    return tf.reduce_sum(image * tf.constant([0.299, 0.587, 0.114]), axis=-1, keepdims=True)


def auto_contrast(image: tf.Tensor) -> tf.Tensor:
    """Scales each channel so that it goes from 0 to 255. A channel of one value stays as it is."""
    least, most = (reduce(image, axis=[0, 1], keepdims=True) for reduce in (tf.reduce_min, tf.reduce_max))
    scale = BRIGHTEST / tf.where(most > least, most - least, 1.0)
    return tf.where(most > least, (image - least) * scale, image)


def equalized(image: tf.Tensor) -> tf.Tensor:
    """Makes all values of each channel about equally frequent, as Pillow does with whole numbers."""
    values = tf.cast(tf.round(tf.clip_by_value(image, 0.0, BRIGHTEST)), tf.int32)
    return tf.cast(tf.stack([_equalized_channel(each) for each in tf.unstack(values, axis=-1)], axis=-1), tf.float32)


def _equalized_channel(values: tf.Tensor) -> tf.Tensor:
    counts = tf.math.bincount(tf.reshape(values, [-1]), minlength=256, maxlength=256)
    step = (tf.reduce_sum(counts) - tf.gather(counts, tf.reduce_max(values))) // 255
    table = tf.minimum((tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1), 255)
    return tf.where(step > 0, tf.gather(table, values), values)


def sharpness(image: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scales the differences from a smoothed image. The pixels at the border stay as they are."""
    kernel = tf.constant([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13
    kernels = tf.tile(kernel[..., tf.newaxis, tf.newaxis], [1, 1, image.shape[-1], 1])
    smooth = tf.nn.depthwise_conv2d(image[tf.newaxis], kernels, [1, 1, 1, 1], "SAME")[0]
    height, width = (tf.range(tf.shape(image)[axis]) for axis in (0, 1))
    rows, columns = ((places > 0) & (places < places[-1]) for places in (height, width))
    is_inside = (rows[:, tf.newaxis] & columns)[..., tf.newaxis]
    return blended(tf.where(is_inside, smooth, image), image, factor)


def inverted(image: tf.Tensor) -> tf.Tensor:
    return BRIGHTEST - image


def posterized(image: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Rounds values down to those that have only their first `bits` of 8 bits set."""
    step = tf.pow(2.0, 8.0 - tf.cast(bits, tf.float32))
    return tf.floor(image / step) * step


def solarized(image: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Inverts the values from the threshold on."""
    return tf.where(image < threshold, image, BRIGHTEST - image)


def moved(image: tf.Tensor, coefficients: Sequence[tf.Tensor | float]) -> tf.Tensor:
    """Moves the pixels by an affine map, to the nearest pixel.

    Args:
      image: the image.
      coefficients: six numbers a to f. The pixel at the column x and the row y comes from the column a x + b y + c and
        the row d x + e y + f, both counted from the middle of the image.
    """
    a, b, c, d, e, f = (tf.cast(each, tf.float32) for each in coefficients)
    shape = tf.shape(image)
    x, y = ((tf.cast(size, tf.float32) - 1) / 2 for size in (shape[1], shape[0]))
    transform = [a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y, 0.0, 0.0]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=tf.stack(transform)[tf.newaxis],
        output_shape=shape[:2],
        interpolation="NEAREST",
        fill_mode="CONSTANT",
        fill_value=FILL,
    )[0]


def rotated(image: tf.Tensor, degrees: tf.Tensor) -> tf.Tensor:
    """Turns the image counter-clockwise around its middle."""
    angle = degrees * (3.141592653589793 / 180)
    cos, sin = tf.cos(angle), tf.sin(angle)
    return moved(image, [cos, -sin, 0.0, sin, cos, 0.0])
