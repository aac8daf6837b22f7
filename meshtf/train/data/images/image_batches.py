"""Training batches whose errors name the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from meshtf.train.data.shuffled_batches import EXAMPLES_TAKEN, NUM_EXAMPLES, ShuffledBatches, shuffled
from meshtf.train.task import Batch, Position


class ImageBatches:
    """Endless batches of images.

    Args:
      batches: the batches as they are made.
      rows: the rows of each batch that are made.
      seed: the seed of the batches.
      error: returns the error of an image with an index, or None for a good one.
    """

    def __init__(
        self, batches: ShuffledBatches, rows: slice, seed: int, error: Callable[[int], Exception | None]
    ) -> None:
        self._batches, self._rows, self._seed, self._error = batches, rows, seed, error

    @property
    def position(self) -> Position:
        return self._batches.position

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch.

        Raises:
          ConfigurationError: if an image of the batch is bad; names it.
        """
        try:
            return next(self._batches)
        except tf.errors.OpError as error:
            taken, count = (self.position[name] for name in (EXAMPLES_TAKEN, NUM_EXAMPLES))
            first, end = taken + self._rows.start, taken + self._rows.stop
            for place in (*range(first, end), max(first - 1, 0), end):  # the last two: others of pairs to mix
                index = shuffled(tf.constant(place, tf.int64), count, self._seed)
                if found := self._error(int(index)):
                    raise found from error
            raise
