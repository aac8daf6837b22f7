"""Training batches whose errors name the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from meshtf.train.data.images.image_order import ImageOrder
from meshtf.train.data.shuffled_batches import EXAMPLES_TAKEN, ShuffledBatches
from meshtf.train.task import Batch, Position


class ImageBatches:
    """Endless batches of images.

    Args:
      batches: the batches as they are made.
      rows: the rows of each batch that are made.
      order: the order in which images are taken.
      error: returns the error of an image with an index, or None for a good one.
    """

    def __init__(
        self, batches: ShuffledBatches, rows: slice, order: ImageOrder, error: Callable[[int], Exception | None]
    ) -> None:
        self._batches, self._rows, self._order, self._error = batches, rows, order, error

    @property
    def position(self) -> Position:
        return self._batches.position

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch.

        Raises:
          ConfigurationError: if an image of the batch is bad. The message names it.
        """
        try:
            return next(self._batches)
        except tf.errors.OpError as error:
            taken = self.position[EXAMPLES_TAKEN]
            first, end = taken + self._rows.start, taken + self._rows.stop
            for place in (*range(first, end), max(first - 1, 0), end):  # the last two: partners in mixed pairs
                index = self._order.index_at(tf.constant(place, tf.int64))
                if found := self._error(int(index)):
                    raise found from error
            raise
