"""Training examples that are mixed in pairs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.train.data.images.augmentations.mixes import Mix
from meshtf.train.data.images.image_examples import IMAGES, LABELS, Make
from meshtf.train.task import Batch

MakePair: TypeAlias = "Callable[[tf.Tensor], Batch]"
"""The number of a pair of places, [] int64 -> the features of two examples."""

_MIXING = 1 << 20
"""A number larger than that of any augmentation, so that pairs have their own seeds."""


def pairs_made(make: Make, index_at: Callable[[tf.Tensor], tf.Tensor], mixes: Sequence[Mix], seed: int) -> MakePair:
    """Returns a function that makes the examples at two places, `2 n` and `2 n + 1`, and mixes them.

    So the mix depends only on the seed and the places. A process that needs one example of a pair makes both.

    Args:
      make: makes an example. Its labels are weights, [classes] float32.
      index_at: returns the image at a place.
      mixes: one of them is drawn for each pair.
      seed: the seed of the random numbers.
    """

    def made(pair: tf.Tensor) -> Batch:
        both = [make(index_at(place), place) for place in (2 * pair, 2 * pair + 1)]
        images, labels = (tf.stack([each[name] for each in both]) for name in (IMAGES, LABELS))
        own_seed = tf.random.experimental.stateless_fold_in(tf.stack([tf.constant(seed, tf.int64), pair]), _MIXING)
        choice = tf.random.stateless_uniform([], own_seed, 0, len(mixes), tf.int32)
        mix_seed = tf.random.experimental.stateless_fold_in(own_seed, 1)
        mixed, own = tf.switch_case(choice, [functools.partial(each.mixed, images, mix_seed) for each in mixes])
        return {
            IMAGES: tf.ensure_shape(mixed, images.shape),
            LABELS: own * labels + (1 - own) * labels[::-1],
        }

    return made
