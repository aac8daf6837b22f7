"""Makes examples of images, for training and for evaluation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.train.data.images.augmentations.augmentation import Augmentation
from meshtf.train.data.images.augmentations.crops import Crop
from meshtf.train.data.images.bad_images import MOST_IN_A_ROW, BadImages
from meshtf.train.data.images.decoding import decoded_window
from meshtf.train.data.images.image_format import ImageFormat
from meshtf.train.data.images.source import Images
from meshtf.train.task import Batch

IMAGES, LABELS = "images", "labels"

Make: TypeAlias = "Callable[[tf.Tensor, tf.Tensor], Batch]"
"""(the index of an image, its place in the endless order), both [] int64 -> the features of an example."""


@dataclasses.dataclass(frozen=True, eq=False)
class ImageExamples:
    """Makes an example of an image: reads it, decodes a window, resizes, augments and normalizes it.

    Attributes:
      images: the images.
      num_classes: the number of classes. Labels start at 0.
      format: the images that a model gets.
      crop: chooses the window.
      augmentations: changes to the image, in this order.
      seed: the seed of the random numbers, which also depend on an example's place.
      has_weights: whether a label is a weight for each class, [classes] float32, and not a number.
    """

    images: Images
    num_classes: int
    format: ImageFormat
    crop: Crop
    augmentations: Sequence[Augmentation] = ()
    seed: int = 0
    has_weights: bool = False

    def example(self, index: tf.Tensor, place: tf.Tensor) -> Batch:
        image, label = self.images.read(index)
        tf.debugging.assert_less(label, tf.constant(self.num_classes, tf.int64))
        tf.debugging.assert_non_negative(label)
        seed = tf.stack([tf.constant(self.seed, tf.int64), place])

        def window(shape: tf.Tensor) -> tf.Tensor:
            return self.crop.window(shape, _folded(seed, 0))

        image = self.format.resized(decoded_window(image, window, self.format.channels))
        for number, augmentation in enumerate(self.augmentations, start=1):
            image = augmentation(image, _folded(seed, number))
        return {IMAGES: self.format.normalized(image), LABELS: self._label(tf.cast(label, tf.int32))}

    def no_examples(self) -> Batch:
        """Returns the features of an empty batch."""
        shape = [0, *self.format.shape.to_integer_list]
        return {IMAGES: tf.zeros(shape), LABELS: self._label(tf.zeros([0], tf.int32))}

    def _label(self, label: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(label, self.num_classes) if self.has_weights else label


def skipping(make: Make, images: Images, bad: BadImages) -> Make:
    """Returns a function that replaces a bad image by the next good one, and counts the bad ones."""

    def note(index: int, steps: int) -> int:
        for step in range(steps):
            bad.skip((int(index) + step) % images.count)
        return int(steps)

    def made(index: tf.Tensor, place: tf.Tensor) -> Batch:
        candidates = tf.data.Dataset.range(min(MOST_IN_A_ROW, images.count))
        examples = candidates.map(lambda step: (make((index + step) % images.count, place), step))
        example, steps = examples.ignore_errors().take(1).get_single_element()
        tf.cond(steps > 0, lambda: tf.numpy_function(note, [index, steps], tf.int64), lambda: steps)
        return example

    return made


def in_parallel(make: Callable[..., Batch], examples: tf.data.Dataset) -> tf.data.Dataset:
    """Makes examples in order, on all cores of the host. Elements of the dataset are the arguments of `make`."""
    return examples.map(make, num_parallel_calls=len(os.sched_getaffinity(0)), deterministic=True)


def _folded(seed: tf.Tensor, number: int) -> tf.Tensor:
    return tf.random.experimental.stateless_fold_in(seed, number)
