"""The order in which training takes images."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.train.data.shuffled_batches import shuffled


@dataclasses.dataclass(frozen=True)
class ImageOrder:
    """An endless order of images, in which each pass over all of them is a new permutation.

    Repeated images are taken in pairs, since two neighbours may be mixed. With three repeats, the images a, b, c and d
    have the order `a b a b a b c d c d c d`.

    Attributes:
      num_images: how many images there are.
      seed: the seed of the permutations.
      repeats: how many times each image is taken.
    """

    num_images: int
    seed: int
    repeats: int = 1

    def index_at(self, place: tf.Tensor) -> tf.Tensor:
        """Returns the image at a place, both [] int64."""
        two = place // (2 * self.repeats)
        return shuffled(2 * two + place % 2, self.num_images, self.seed)
