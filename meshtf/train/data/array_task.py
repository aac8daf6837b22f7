"""Tasks whose examples are arrays in memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import ShapeLike
from meshtf.errors import counted
from meshtf.train.data._array_checks import check_arrays
from meshtf.train.data._row_padding import at_rows
from meshtf.train.data.fingerprints import CONTENTS, checksum
from meshtf.train.data.shuffled_batches import ShuffledBatches
from meshtf.train.task import WEIGHTS, Batch, Fingerprint, Position

Features: TypeAlias = "Mapping[str, np.ndarray]"
"""Arrays by the names that a model uses. The first axis of each runs over the examples."""


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayTask:
    """A `TaskByRows` of examples in memory, in two parts.

    Attributes:
      name: its name in messages.
      shapes: named shape of one example's feature, by the feature's name.
      train: features to train on.
      held_out: features that training never sees.

    Raises:
      ConfigurationError: if a part lacks a feature or has no example, or if features differ in shape, in type or in the
        number of examples.
      ShapeError: if a feature's shape is no named shape.
    """

    name: str
    shapes: Mapping[str, ShapeLike]
    train: Features
    held_out: Features
    tokens_per_example: None = dataclasses.field(default=None, init=False)
    vocabulary: None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        check_arrays(self.name, self.shapes, {"train": self.train, "held_out": self.held_out})

    def __str__(self) -> str:
        train, held_out = num_examples(self.train), num_examples(self.held_out)
        return f"{self.name}: {counted(train, 'example')} to train on, {held_out:,} held out"

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        return {
            name: mtf.TensorSpec(mtf.Shape([batch]) + mtf.convert_to_shape(shape), tf.as_dtype(self.train[name].dtype))
            for name, shape in self.shapes.items()
        }

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> ShuffledBatches:
        return self.training_rows(slice(0, batch_size), batch_size, seed, position)

    def training_rows(
        self, rows: slice, batch_size: int, seed: int, position: Position | None = None
    ) -> ShuffledBatches:
        tensors = {name: tf.constant(array) for name, array in self.train.items()}

        def features_of(indices: tf.Tensor, _: tf.Tensor) -> Batch:
            return {name: tf.gather(tensor, indices) for name, tensor in tensors.items()}

        return ShuffledBatches(features_of, self.num_training_examples, batch_size, seed, position, rows)

    @property
    def num_training_examples(self) -> int:
        return num_examples(self.train)

    def training_examples(self, indices: np.ndarray, places: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        return {name: array[indices] for name, array in self.train.items()}

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        return self.evaluation_rows(slice(0, batch_size), batch_size)

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterator[Batch]:
        count = num_examples(self.held_out)
        for start in range(0, count, batch_size):
            own = slice(start + rows.start, start + rows.stop)
            made = {name: at_rows(array[own], rows, batch_size) for name, array in self.held_out.items()}
            weights = (np.arange(start, start + batch_size) < count).astype(np.float32)
            yield {**made, WEIGHTS: weights}

    def fingerprint(self) -> Fingerprint:
        """Returns facts about all features, as `TaskOfKnownData.fingerprint`."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> Fingerprint:
        return {
            part: {
                "examples": num_examples(features),
                CONTENTS: checksum([np.asarray(features[name]) for name in self.shapes]),
            }
            for part, features in (("examples to train on", self.train), ("held-out examples", self.held_out))
        }

    def num_bytes(self, _: Mapping[str, np.ndarray | tf.Tensor]) -> None:
        return None


def num_examples(features: Features) -> int:
    return len(next(iter(features.values())))
