"""TFRecord files of encoded images, in the layout of ImageNet's."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from meshtf.errors import nearest
from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.source import Images
from meshtf.train.data.images.sources.shard_names import check_shards
from meshtf.train.data.sources.record_lengths import CHECKSUM_BYTES, HEADER_BYTES, record_lengths
from meshtf.train.data.sources.text_files import files_matching

_NO_FEATURE = """\
{place} has no feature "{feature}", only {known}{hint}
ImageRecords.{option} says which feature is the {what}."""
_UNREADABLE = """\
the TFRecord file {path} cannot be read: {reason}
It is damaged, compressed, or no TFRecord file. Images are read in any order, so the records must not be compressed."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ImageRecords:
    """Records of tf.train.Example, each with an encoded image and a label, in files that are not compressed.

    Where the images begin is found at the start, from the lengths in the files. The images are read when they are
    needed. The checksums of records are not checked.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths.
      image: the name of the feature that is the image's file.
      label: the name of the feature that is the label.
      first_label: the number of the first class. ImageNet's records count from 1, and batches from 0.

    Raises:
      ConfigurationError: when images are first needed: if no file matches, a shard is missing, a file is damaged or has
        no record, or the first record lacks a feature.
    """

    patterns: str | Sequence[str]
    image: str = "image/encoded"
    label: str = "image/class/label"
    first_label: int = 1

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"image records {', '.join(patterns)}"

    def images(self) -> Images:
        table = _RecordTable(files_matching(self.patterns))
        self._check_features(table)
        spec: dict[str, Any] = {
            self.image: tf.io.FixedLenFeature([], tf.string),
            self.label: tf.io.FixedLenFeature([], tf.int64),
        }

        def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            fetch = table.record if tf.executing_eagerly() else table.record_or_nothing
            record = tf.ensure_shape(tf.numpy_function(fetch, [index], tf.string, stateful=False), [])
            features = tf.io.parse_single_example(record, spec)
            return features[self.image], features[self.label] - self.first_label

        return Images(table.count, read, table.place, table.key, table.contents)

    def _check_features(self, table: _RecordTable) -> None:
        place = table.place(0)
        try:
            features = tf.train.Example.FromString(table.record(0)).features.feature
        except DecodeError as error:
            raise ConfigurationError(f"{place} is no tf.train.Example: {error}") from error
        for option, feature, what in (("image", self.image, "image"), ("label", self.label, "label")):
            if feature not in features:
                known, hint = ", ".join(sorted(features)) or "none at all", nearest(feature, features)
                raise ConfigurationError(
                    _NO_FEATURE.format(place=place, feature=feature, known=known, hint=hint, option=option, what=what)
                )


class _RecordTable:
    """The places of all records in some files."""

    def __init__(self, files: Sequence[Path]) -> None:
        check_shards(files)
        self._files = files
        lengths = [_lengths_of(path) for path in files]
        self._starts = np.cumsum([0, *map(len, lengths)])
        if not self.count:
            raise ConfigurationError(f"there is no record in {files[0]}{', ...' if len(files) > 1 else ''}")
        self._lengths = np.concatenate(lengths)
        around = HEADER_BYTES + CHECKSUM_BYTES
        self._offsets = np.concatenate([np.cumsum(each + around) - each - CHECKSUM_BYTES for each in lengths])
        table = repr([*zip((path.name for path in files), map(len, lengths), strict=True)])
        self.contents = f"{zlib.crc32(self._lengths.tobytes(), zlib.crc32(table.encode(errors='surrogatepass'))):08x}"

    @property
    def count(self) -> int:
        return int(self._starts[-1])

    def record(self, index: int) -> bytes:
        """Reads the bytes of a record."""
        file, _ = self._found(index)
        with open_regular(self._files[file]) as opened:
            opened.seek(int(self._offsets[index]))
            return opened.read(int(self._lengths[index]))

    def record_or_nothing(self, index: int) -> bytes:
        """Reads the bytes of a record, or none if it cannot be read. TensorFlow would print the lines of an error."""
        try:
            return self.record(index)
        except OSError:
            return b""

    def place(self, index: int) -> str:
        file, number = self._found(index)
        return f"{self._files[file]}, record {number + 1}"

    def key(self, index: int) -> str:
        file, number = self._found(index)
        return f"{self._files[file].name} {number}"

    def _found(self, index: int) -> tuple[int, int]:
        """Returns the number of a record's file, and the record's number in it."""
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        return file, int(index - self._starts[file])


def _lengths_of(path: Path) -> np.ndarray:
    try:
        return np.fromiter(record_lengths(path), np.int64)
    except (OSError, ValueError) as error:
        raise ConfigurationError(_UNREADABLE.format(path=path, reason=error)) from error
