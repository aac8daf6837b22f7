"""Mixes of two training images and of their labels."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import gin
import tensorflow as tf

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError


@runtime_checkable
class Mix(Protocol):
    """Mixes two training images. It depends only on the images and the seed."""

    def mixed(self, images: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the images, each with a part of the other, and the share of each that is still its own, [] float32.

        Args:
          images: [2, height, width, channels] float32.
          seed: a seed of its own for each pair, [2] int64.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Mixup:
    """Means of two images and of their labels, with a weight drawn from Beta(alpha, alpha) (Zhang et al. 2018).

    Attributes:
      alpha: near 0 the result is almost one of the two images; at 1 all weights are equally likely.

    Raises:
      ConfigurationError: if alpha is not above 0.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        _check_alpha("Mixup", self.alpha)

    def mixed(self, images: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        own = _beta(self.alpha, seed)
        return own * images + (1 - own) * images[::-1], own


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class CutMix:
    """Exchanges a window of two images, and the same share of their labels (Yun et al. 2019).

    The window has the images' proportions, an area drawn from Beta(alpha, alpha) and a middle anywhere. A part of it
    that is outside does not count.

    Attributes:
      alpha: near 0 the window is almost empty or almost whole; at 1 all areas are equally likely.

    Raises:
      ConfigurationError: if alpha is not above 0.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        _check_alpha("CutMix", self.alpha)

    def mixed(self, images: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        side = tf.sqrt(1 - _beta(self.alpha, seed))
        middle = tf.random.stateless_uniform([2], tf.random.experimental.stateless_fold_in(seed, 1))
        height, width = images.shape[1:3]
        rows, columns = (_is_inside(n, middle[axis], side) for axis, n in enumerate((height, width)))
        is_exchanged = rows[:, tf.newaxis] & columns
        own = 1 - tf.reduce_mean(tf.cast(is_exchanged, tf.float32))
        return tf.where(is_exchanged[..., tf.newaxis], images[::-1], images), own


def _is_inside(size: int, middle: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """Tells which pixels of a line are in a window, [size] bool. Middle and side are parts of the line's length."""
    pixels = (tf.range(size, dtype=tf.float32) + 0.5) / size
    return tf.abs(pixels - middle) < side / 2


def _beta(alpha: float, seed: tf.Tensor) -> tf.Tensor:
    """Draws from Beta(alpha, alpha), [] float32."""
    drawn = tf.random.stateless_gamma([2], seed, alpha)
    return tf.math.divide_no_nan(drawn[0], drawn[0] + drawn[1])


def _check_alpha(name: str, alpha: float) -> None:
    if not alpha > 0:
        raise ConfigurationError(f"{name}.alpha must be above 0, and is {alpha}")
