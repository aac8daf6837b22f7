"""Parts of large files, which are read in any order."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from meshtf.files.regular_file import open_regular


@dataclasses.dataclass(frozen=True, eq=False)
class FileParts:
    """Parts of files, in the order of the files.

    Attributes:
      files: the files.
      counts: the number of parts in each file, [files] int64.
      offsets: the first byte of each part, [parts] int64.
      lengths: the bytes of each part, [parts] int64.
    """

    files: Sequence[Path]
    counts: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @property
    def contents(self) -> str:
        """Returns a checksum of the names of the files and of the lengths of the parts."""
        names = repr([*zip((path.name for path in self.files), self.counts.tolist(), strict=True)])
        return f"{zlib.crc32(self.lengths.tobytes(), zlib.crc32(names.encode(errors='surrogatepass'))):08x}"

    def read(self, index: int) -> bytes:
        """Reads the bytes of a part.

        Raises:
          OSError: if the file is missing or cannot be read.
        """
        file, _ = self.place(index)
        with open_regular(self.files[file]) as opened:
            opened.seek(int(self.offsets[index]))
            return opened.read(int(self.lengths[index]))

    def read_tensor(self, index: tf.Tensor) -> tf.Tensor:
        """Reads the bytes of a part, [] string. In a graph they are empty if the file cannot be read."""
        # TensorFlow would print the lines of an error.
        read = self.read if tf.executing_eagerly() else self._read_or_nothing
        return tf.ensure_shape(tf.numpy_function(read, [index], tf.string, stateful=False), [])

    def place(self, index: int) -> tuple[int, int]:
        """Returns the number of a part's file, and the number of the part in it, both from 0."""
        ends = np.cumsum(self.counts)
        file = int(np.searchsorted(ends, index, side="right"))
        return file, int(index - ends[file] + self.counts[file])

    def _read_or_nothing(self, index: int) -> bytes:
        try:
            return self.read(index)
        except OSError:
            return b""
