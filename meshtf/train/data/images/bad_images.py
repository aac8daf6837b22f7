"""Images that cannot be used: the messages about them, and how other images replace them."""

from __future__ import annotations

import re

import tensorflow as tf

from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.decoding import decoded
from meshtf.train.data.images.source import Images

MOST_IN_A_ROW = 100
"""The most consecutive bad images that the next good image can replace."""

NAMED = 10
"""The most images that are named when they are skipped."""

_BAD = """\
{place}: {fault}
Repair or remove it, or skip bad images with ImageTask.skip_bad_images = True."""
_TOO_MANY = """\
{place}: {fault}
The images after it are bad, too: {count} in a row, which is too many to skip. Are the files still there?"""

_OPERATION = re.compile(r"\{\{.*?\}\} | \[Op:\w+\]( name: \S*)?")
"""The names of operations in messages of TensorFlow."""


class BadImages:
    """The bad images among a source's images.

    Args:
      images: the source's images.
      num_classes: the number of classes. Labels are from 0 to `num_classes` - 1.
      channels: the channels of decoded images.
    """

    def __init__(self, images: Images, num_classes: int, channels: int) -> None:
        self._images, self._num_classes, self._channels = images, num_classes, channels
        self.skipped: set[int] = set()

    def fault(self, index: int) -> str | None:
        """Says what is wrong with an image, or returns None for a good one."""
        try:
            image, label = self._images.read(tf.constant(index, tf.int64))
        except (tf.errors.OpError, OSError) as error:
            return f"the image cannot be read: {_first_line(error)}"
        if not 0 <= int(label) < self._num_classes:
            last = self._num_classes - 1
            return f"its label is {int(label)}, but labels go from 0 to {last} (ImageTask.num_classes)"
        try:
            decoded(image, self._channels)
        except (tf.errors.OpError, ValueError) as error:
            return f"the image cannot be decoded: {_first_line(error)}"
        return None

    def error(self, index: int) -> ConfigurationError | None:
        """Returns an error that names an image and its fault, or None for a good image."""
        fault = self.fault(index)
        return None if fault is None else ConfigurationError(_BAD.format(place=self._images.place(index), fault=fault))

    def too_many(self, index: int) -> ConfigurationError | None:
        """Returns an error for the first of too many bad images in a row, or None for a good image."""
        fault = self.fault(index)
        if fault is None:
            return None
        place, count = self._images.place(index), min(MOST_IN_A_ROW, self._images.count)
        return ConfigurationError(_TOO_MANY.format(place=place, fault=fault, count=count))

    def skip(self, index: int) -> None:
        """Counts a bad image once, and prints its fault and how many were skipped so far."""
        if index in self.skipped:
            return
        self.skipped.add(index)
        so_far = f"{counted(len(self.skipped), 'bad image')} skipped so far"
        if len(self.skipped) <= NAMED:
            fault = self.fault(index) or "the part of it that was drawn cannot be decoded"
            print(f"{self._images.place(index)}: {fault}; {so_far}", flush=True)
        elif not len(self.skipped) % MOST_IN_A_ROW:
            print(so_far, flush=True)


def _first_line(error: Exception) -> str:
    """Returns the first line of an error without the names of TensorFlow's operations."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    lines = _OPERATION.sub("", getattr(error, "message", None) or str(error)).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
