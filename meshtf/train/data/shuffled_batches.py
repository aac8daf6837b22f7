"""Endless batches of examples. Their order depends only on the seed and the position, so any batch can be reached
directly.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError
from meshtf.train.task import Batch, Position

EXAMPLES_TAKEN, NUM_EXAMPLES = "examples_taken", "num_examples"

_FARTHEST = 2**62
"""The farthest place of an example. At a million examples a second it is reached after 146,000 years."""

READY_BATCHES = 4  # they are made ahead while steps run

FeaturesOf: TypeAlias = "Callable[[tf.Tensor, tf.Tensor], Batch]"
"""(indices of examples, their places in the endless order), [n] int64 each -> features [n, ...]."""

OTHER_DATA = """\
the saved position is a place in {saved}, and the data have {found:,} now, so training cannot continue exactly.
Restore the data and the settings that the position was saved with, or start in another model folder."""

NO_EXAMPLE = "the task has no example to train on; its training part must have at least one"

BAD_POSITION = """\
{position} is no position in the data: it needs "{taken}" and "{count}", whole numbers, the first 0 or more"""


class ShuffledBatches:
    """Batches in which each epoch is a new permutation of the examples. A batch may contain the end of an epoch.

    The example at a place depends only on the seed and the place, so any place can be reached directly.

    Args:
      features_of: makes the features of examples.
      num_examples: how many examples there are.
      batch_size: the size of whole batches, which all features have.
      seed: the seed of the permutations.
      position: where to begin. None: at the start.
      rows: the rows of each batch that are made. The others are 0.
      index_at: returns the example at a place, both [] int64. By default each epoch is a permutation.

    Raises:
      ConfigurationError: if the position is invalid, or belongs to another number of examples; or if there is no
        example.
    """

    def __init__(
        self,
        features_of: FeaturesOf,
        num_examples: int,
        batch_size: int,
        seed: int,
        position: Position | None,
        rows: slice,
        index_at: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        if num_examples < 1:
            raise ConfigurationError(NO_EXAMPLE)
        self._batch_size = batch_size
        self._num_examples = num_examples
        self._taken = 0 if position is None else _examples_taken(position, num_examples)
        places = tf.data.Dataset.range(self._taken, np.iinfo(np.int64).max)
        # Places are mapped one by one. At the ends of epochs the seeds of a batch differ, and index_shuffle of
        # TensorFlow 2.21 refuses a vector of seeds.
        if index_at is None:
            index_at = functools.partial(shuffled, num_examples=num_examples, seed=seed)
        indices = places.map(lambda place: (index_at(place), place))
        made = features_of if rows == slice(0, batch_size) else _of_rows(features_of, rows, batch_size)
        batches = indices.batch(batch_size, drop_remainder=True).map(made).prefetch(READY_BATCHES)
        self._batches = [iter(batches)]
        # Making batches needs Python. It must end before Python does, or Python would wait for it for ever.
        weakref.finalize(self, self._batches.clear)
        # `next` of a dataset releases Python's lock. To acquire it again, it waits while Python makes the next batch.
        # Another thread does this waiting.
        self._taker = ThreadPoolExecutor(max_workers=1)
        self._ahead = self._taker.submit(next, self._batches[0])

    @property
    def position(self) -> Position:
        return {EXAMPLES_TAKEN: self._taken, NUM_EXAMPLES: self._num_examples}

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._ahead.result()
        self._ahead = self._taker.submit(next, self._batches[0])
        self._taken += self._batch_size
        return batch


def _of_rows(features_of: FeaturesOf, rows: slice, batch_size: int) -> FeaturesOf:
    """Returns a function that makes only these rows, and zeros for the others."""
    around = [rows.start, batch_size - rows.stop]

    def made(indices: tf.Tensor, places: tf.Tensor) -> Batch:
        features = features_of(indices[rows], places[rows])
        return {name: tf.pad(x, [around] + [[0, 0]] * (len(x.shape) - 1)) for name, x in features.items()}

    return made


def _examples_taken(position: Position, num_examples: int) -> int:
    is_position = isinstance(position, Mapping)  # the checkpoint may be a stranger's
    taken, count = (position.get(name) if is_position else None for name in (EXAMPLES_TAKEN, NUM_EXAMPLES))
    if not isinstance(taken, int) or not isinstance(count, int) or not 0 <= taken <= _FARTHEST:
        raise ConfigurationError(BAD_POSITION.format(position=position, taken=EXAMPLES_TAKEN, count=NUM_EXAMPLES))
    if count != num_examples:
        raise ConfigurationError(OTHER_DATA.format(saved=counted(count, "example"), found=num_examples))
    return taken


def shuffled(place: tf.Tensor, num_examples: int | tf.Tensor, seed: int) -> tf.Tensor:
    """Returns the example at a place in the endless order, both [] int64."""
    epoch, place_in_epoch = place // num_examples, place % num_examples
    key = tf.stack([tf.constant(seed, tf.int64), epoch])
    return tf.random.experimental.index_shuffle(place_in_epoch, seed=key, max_index=num_examples - 1)
