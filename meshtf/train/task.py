"""What a model is trained on, and in which order, as tf.data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

import meshtf as mtf

Features: TypeAlias = "Mapping[str, np.ndarray]"
"""Arrays by the name under which a model gets them; the first axis of each runs over the examples."""

WEIGHTS = "weights"
"""The name under which an evaluation is given 1 for an example and 0 for padding."""


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Examples in memory, in two parts.

    Attributes:
      name: what it is called in messages.
      shapes: named shape of one example's feature, by the feature's name.
      train: features to train on.
      held_out: features that training never sees.
    """

    name: str
    shapes: Mapping[str, mtf.Shape]
    train: Features
    held_out: Features

    def __str__(self) -> str:
        return f"{self.name}: {num_examples(self.train)} examples to train on, {num_examples(self.held_out)} held out"

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        """What a program is fed with a batch."""
        return {
            name: mtf.TensorSpec(mtf.Shape([batch]) + shape, tf.as_dtype(self.train[name].dtype))
            for name, shape in self.shapes.items()
        }


def num_examples(features: Features) -> int:
    return len(next(iter(features.values())))


def training_batches(features: Features, batch_size: int, seed: int, first_step: int = 0) -> tf.data.Dataset:
    """Endless full batches; each epoch is a new permutation of the examples.

    Which example stands where depends on the seed and its position alone, so that step n gets the same batch whether
    training started at 0 or at n. Batches run over the ends of epochs.
    """
    count = num_examples(features)
    tensors = {name: tf.constant(array) for name, array in features.items()}

    def example(position: tf.Tensor) -> dict[str, tf.Tensor]:
        epoch, place = position // count, position % count
        key = tf.stack([tf.constant(seed, tf.int64), epoch])
        index = tf.random.experimental.index_shuffle(place, seed=key, max_index=count - 1)
        return {name: tensor[index] for name, tensor in tensors.items()}

    positions = tf.data.Dataset.range(first_step * batch_size, np.iinfo(np.int64).max)
    return positions.map(example).batch(batch_size, drop_remainder=True).prefetch(2)


def evaluation_batches(features: Features, batch_size: int) -> tf.data.Dataset:
    """Every example once, in order, in full batches; the last is padded with zeros.

    The feature `weights`, [batch] float32, is 1 for an example and 0 for padding.
    """
    padding = -num_examples(features) % batch_size

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, padding)] + [(0, 0)] * (array.ndim - 1))

    weights = np.ones(num_examples(features), np.float32)
    arrays = {name: padded(array) for name, array in {**features, WEIGHTS: weights}.items()}
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size, drop_remainder=True)
