"""TFRecord files of encoded images, in the layout of ImageNet's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.source import Images
from meshtf.train.data.images.sources.file_parts import FileParts
from meshtf.train.data.images.sources.shard_names import check_shards
from meshtf.train.data.sources.record_lengths import CHECKSUM_BYTES, HEADER_BYTES, record_lengths
from meshtf.train.data.sources.text_files import files_matching

_NO_FEATURE = """\
{place} has no feature "{feature}", only {known}{hint}
ImageRecords.{option} says which feature is the {option}."""
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
      first_label: the number of the first class. ImageNet's records count from 1; labels in batches count from 0.

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
        files = files_matching(self.patterns)
        check_shards(files, "ImageRecords.patterns")
        parts = record_parts(files)
        self._check_features(parts)
        spec: dict[str, Any] = {
            self.image: tf.io.FixedLenFeature([], tf.string),
            self.label: tf.io.FixedLenFeature([], tf.int64),
        }

        def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            features = tf.io.parse_single_example(parts.read_tensor(index), spec)
            return features[self.image], features[self.label] - self.first_label

        def key(index: int) -> str:
            file, number = parts.place(index)
            return f"{files[file].name} {number}"

        return Images(len(parts.lengths), read, lambda index: _place(parts, index), key, parts.contents)

    def _check_features(self, parts: FileParts) -> None:
        place = _place(parts, 0)
        try:
            features = tf.train.Example.FromString(parts.read(0)).features.feature
        except DecodeError as error:
            raise ConfigurationError(f"{place} is no tf.train.Example: {error}") from error
        for option, feature in (("image", self.image), ("label", self.label)):
            if feature not in features:
                known, hint = ", ".join(sorted(features)) or "none at all", nearest(feature, features)
                raise ConfigurationError(
                    _NO_FEATURE.format(place=place, feature=feature, known=known, hint=hint, option=option)
                )


def record_parts(files: Sequence[Path]) -> FileParts:
    """Finds the data of all records."""
    lengths = [_lengths_of(path) for path in files]
    counts = np.array([len(each) for each in lengths], np.int64)
    if not counts.any():
        raise ConfigurationError(f"there is no record in {files[0]}{', ...' if len(files) > 1 else ''}")
    around = HEADER_BYTES + CHECKSUM_BYTES
    offsets = [np.cumsum(each + around) - each - CHECKSUM_BYTES for each in lengths]
    return FileParts(files, counts, np.concatenate(offsets), np.concatenate(lengths))


def _lengths_of(path: Path) -> np.ndarray:
    try:
        return np.fromiter(record_lengths(path), np.int64)
    except (OSError, ValueError) as error:
        raise ConfigurationError(_UNREADABLE.format(path=path, reason=error)) from error


def _place(parts: FileParts, index: int) -> str:
    file, number = parts.place(index)
    return f"{parts.files[file]}, record {number + 1}"
