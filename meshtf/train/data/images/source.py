"""The protocol of sources of images: labelled images that are read in any order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import tensorflow as tf

Read: TypeAlias = "Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]"
"""The index of an image, [] int64 -> the image, and its label, [] int64. The image is the bytes of a file, []
string, or pixels [height, width, channels] uint8. A file may be JPEG, PNG, BMP, WebP or GIF."""


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Labelled images that are read one by one, in any order, in functions of tf.data.

    Attributes:
      count: how many images there are.
      read: reads one.
      place: returns where an image is from, for messages.
      key: returns the name by which an image is held out or not. It is the same on all machines.
      contents: a checksum by which a run notices that its data have changed.
      class_names: the names of the classes in the order of their labels, where they are known.
    """

    count: int
    read: Read
    place: Callable[[int], str]
    key: Callable[[int], str]
    contents: str
    class_names: tuple[str, ...] | None = None


@runtime_checkable
class ImageSource(Protocol):
    """Labelled images in a definite order."""

    def images(self) -> Images:
        """Finds the images. They are read later.

        Raises:
          ConfigurationError: if there are none, or a file is missing or cannot be read.
        """
        ...
